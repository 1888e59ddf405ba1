#!/bin/sh
# Take down the lab of TORCHFLEET_LAB_PREFIX: containers, networks, mounts, files.
set -eu
cd "$(dirname "$0")/.."
if [ ! -d /var/lib/torchfleet-lab ] && [ ! -d inventories/lab ]; then
    echo "No lab is up"
    exit 0
fi
scripts/bootstrap.sh
began=$(date +%s)
echo "Taking down lab ${TORCHFLEET_LAB_PREFIX:-tflab}"
.venv/bin/ansible-playbook playbooks/lab_down.yml >.clean.log 2>&1 || {
    tail -n 20 .clean.log >&2
    exit 1
}
rm -f .clean.log
echo "Nothing of the lab is left ($(($(date +%s) - began)) s)"
