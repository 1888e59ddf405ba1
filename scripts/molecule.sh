#!/bin/bash
# Run molecule scenarios, all or those named, each on a lab of its own; the lab goes even when a scenario fails.
set -euo pipefail
cd "$(dirname "$0")/.."
TORCH_INDEX=${TORCH_INDEX-$(python scripts/torch_index.py)}
export TORCH_INDEX
[ $# -gt 0 ] || set -- default releases network
mkdir -p build
for scenario in "$@"; do
    began=$(date +%s)
    TORCHFLEET_LAB_PREFIX=tfm-$scenario
    export TORCHFLEET_LAB_PREFIX
    log=build/molecule-$scenario.log
    echo "molecule: $scenario"
    if ! molecule test --scenario-name "$scenario" 2>&1 | tee "$log"; then
        # What failed stands far above the end, where the lab is taken down.
        echo "molecule: $scenario failed (all of it: $log):"
        sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -A 12 -E '\[ERROR\]|fatal: |│ (E  |___)' | tail -n 60 || true
        exit 1
    fi
    echo "molecule: $scenario passed in $(($(date +%s) - began)) s"
done
