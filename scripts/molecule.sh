#!/bin/sh
# Run molecule scenarios, all or those named, each on a lab of its own; the lab goes even when a scenario fails.
set -eu
cd "$(dirname "$0")/.."
TORCH_INDEX=${TORCH_INDEX-$(python scripts/torch_index.py)}
export TORCH_INDEX
[ $# -gt 0 ] || set -- default releases network
for scenario in "$@"; do
    began=$(date +%s)
    TORCHFLEET_LAB_PREFIX=tfm-$scenario
    export TORCHFLEET_LAB_PREFIX
    echo "molecule: $scenario"
    molecule test --scenario-name "$scenario"
    echo "molecule: $scenario passed in $(($(date +%s) - began)) s"
done
