#!/bin/sh
# What is rendered, read by the programs that will read it: an environment of their own, kept in .cache/clients.
set -eu
cd "$(dirname "$0")/.."
folder=.cache/clients
wanted="torch==2.13.0 accelerate==1.15.0 deepspeed==0.19.8 nvidia-nccl-cu12 pytest==9.2.0"
if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$wanted" ]; then
    echo "Making the environment of the real clients (two minutes)"
    rm -rf "$folder"
    python -m venv "$folder"
    index=${TORCH_INDEX-$(python scripts/torch_index.py)}
    "$folder/bin/pip" install --quiet --disable-pip-version-check ${index:+--extra-index-url "$index"} \
        torch==2.13.0 accelerate==1.15.0 pytest==9.2.0 setuptools wheel ninja packaging 2>"$folder.log" || { tail -n 5 "$folder.log" >&2; exit 1; }
    DS_BUILD_OPS=0 "$folder/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation deepspeed==0.19.8 2>"$folder.log" ||
        { tail -n 5 "$folder.log" >&2; exit 1; }
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps nvidia-nccl-cu12 2>"$folder.log" || { tail -n 5 "$folder.log" >&2; exit 1; }
    rm -f "$folder.log"
    echo "$wanted" >"$folder/wanted"
fi
"$folder/bin/python" -m pytest tests/clients

# Of the report, the reader is a browser; without one `make unit` skips these tests.
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "There is no browser on this machine. Install one first: sudo apt-get install chromium" >&2
        exit 1
    fi
    echo "Installing chromium (a minute)"
    apt-get update -q >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium >/dev/null
fi
exec python -m pytest tests/unit/plugins/plugin_utils/test_report.py
