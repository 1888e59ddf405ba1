#!/bin/sh
# Make the controller's environment in .venv, once, and again whenever requirements.txt changes.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/requirements.txt
if [ -f "$stamp" ] && cmp -s requirements.txt "$stamp" && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi
began=$(date +%s)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "There is no $python on this machine. Install Python 3.11 or later: apt-get install python3 python3-venv" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$python is $("$python" -V), wanted Python 3.11 or later: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
fi
# Debian splits venv off the interpreter.
missing=
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
command -v ssh >/dev/null || missing="$missing openssh-client"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing$missing"
        apt-get update -q >.bootstrap.log 2>&1 || true
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >>.bootstrap.log 2>&1 || {
            echo "apt-get could not install$missing; its words are in .bootstrap.log" >&2
            exit 1
        }
        rm -f .bootstrap.log
    else
        echo "Missing:$missing. Install it first: sudo apt-get install$missing" >&2
        exit 1
    fi
fi
echo "Making the controller's environment in .venv (about a minute)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt 2>.bootstrap.log; then
    grep -v '^WARNING' .bootstrap.log | tail -n 5 >&2
    echo "pip could not install requirements.txt: is a package index in reach? Try: .venv/bin/python -m pip download ansible-core" >&2
    exit 1
fi
rm -f .bootstrap.log
cp requirements.txt "$stamp"
echo "Environment ready after $(($(date +%s) - began)) s"
