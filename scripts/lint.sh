#!/bin/sh
# All gates, or those named: scripts/lint.sh [GATE ...]
# One line each. What a gate says is shown where it fails, and kept in .cache/lint/log.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$root/.cache/lint
installed=$work/ansible_collections/torchfleet/cluster
plugins=ansible_collections.torchfleet.cluster.plugins
# The longest first: they run side by side, one to a core.
gates="pylint sanity importer ansible-lint playbooks changelog mypy yamllint argument-specs ruff format"

# No setting of the user's is to decide what passes.
unset ANSIBLE_CONFIG ANSIBLE_COLLECTIONS_PATH ANSIBLE_ROLES_PATH ANSIBLE_INVENTORY
export PATH="$root/.venv/bin:$PATH" NO_COLOR=1 ANSIBLE_NOCOLOR=1 GALAXY_IMPORTER_RUN_ANSIBLE_LINT=false

gate() {
    case $1 in
    pylint) sanity --test pylint ;;
    sanity) sanity --skip-test pylint ;;
    importer) importer ;;
    ansible-lint) ANSIBLE_COLLECTIONS_PATH=$root/playbooks/collections ansible-lint --strict -q ;;
    playbooks) playbooks ;;
    changelog) antsibull-changelog lint ;;
    mypy) mypy -p "$plugins.module_utils" -p "$plugins.plugin_utils" ;;
    yamllint) yamllint --strict . ;;
    argument-specs) python scripts/check_argument_specs.py ;;
    ruff) ruff check . ;;
    format) ruff format --diff . ;;
    *) echo "There is no such gate; there are: $gates" && return 2 ;;
    esac
}

sanity() {
    python scripts/sanity.py "$installed" "$work/home" sanity "$@"
}

importer() {
    cd "$work"
    python -m galaxy_importer.main torchfleet-cluster-*.tar.gz
}

# Both ways of running, from a folder that is neither's: a checkout's files, and the installed collection's full names.
playbooks() {
    rm -rf "$work/elsewhere"
    mkdir "$work/elsewhere"
    cd "$work/elsewhere"
    printf 'train:\n  hosts:\n    node1:\n' >hosts.yml
    ansible-playbook -i hosts.yml --syntax-check "$root"/playbooks/*.yml
    export ANSIBLE_COLLECTIONS_PATH="$work"
    for file in "$installed"/playbooks/*.yml; do
        echo "torchfleet.cluster.$(basename "$file" .yml)"
    done | xargs ansible-playbook -i hosts.yml --syntax-check
    ansible-playbook torchfleet.cluster.lab_down --check -e lab_prefix=none
}

# What several gates look at: the collection as a user gets it.
install_collection() {
    mkdir -p "$work/log"
    rm -rf "$work"/*.tar.gz "$work/ansible_collections"
    ansible-galaxy collection build --output-path "$work"
    ansible-galaxy collection install "$work"/*.tar.gz -p "$work" --force --no-deps
    # Else ansible-test asks the checkout's git, which ignores this copy.
    git init --quiet "$installed"
}

if [ "${1:-}" = --one ]; then
    began=$(date +%s)
    log=$work/log/$2
    # A shell of its own, as `if` would switch off its `set -e`. Two gates end well although they logged an error or
    # found nothing to test.
    if "$0" --bare "$2" >"$log" 2>&1 && ! grep -Eq '^ERROR|All targets skipped' "$log"; then
        printf '  ok    %-14s %3d s\n' "$2" $(($(date +%s) - began))
    else
        # Of what ansible-test and galaxy-importer say at length, the errors.
        words=$(grep -E '^(ERROR|FATAL)' "$log" || tail -n 100 "$log")
        printf '  FAIL  %-14s %3d s  %s\n%s\n' "$2" $(($(date +%s) - began)) "${log#"$PWD"/}" "$words"
        exit 1
    fi
elif [ "${1:-}" = --bare ]; then
    gate "$2"
else
    scripts/bootstrap.sh
    began=$(date +%s)
    mkdir -p "$work"
    install_collection >"$work/build.log" 2>&1 || {
        cat "$work/build.log"
        exit 1
    }
    # shellcheck disable=SC2086 # a list of words
    if printf '%s\n' ${*:-$gates} | xargs -P "$(nproc)" -n 1 scripts/lint.sh --one; then
        echo "Lint passed ($(($(date +%s) - began)) s)"
    else
        echo "Lint failed ($(($(date +%s) - began)) s); one gate again: scripts/lint.sh GATE"
        exit 1
    fi
fi
