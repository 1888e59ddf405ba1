# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
BIN := $(CURDIR)/.venv/bin
# Scenarios of test-full alone.
FULL := bench check faults launchers members stack
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/playbooks/collections:$(HOME)/.ansible/collections
export PATH := $(BIN):$(PATH)

.PHONY: help venv demo test test-full lint unit molecule clients bench clean distclean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv:
	@scripts/bootstrap.sh

demo: venv ## Three container nodes, provisioned, and one model trained over all of them
	@TORCH_INDEX="$${TORCH_INDEX-$$(python scripts/torch_index.py)}" python scripts/demo.py

test: lint unit molecule ## Lint, unit tests, and the molecule scenarios on real labs

test-full: test clients ## The same, and the long suites: real clients, faults, scale
	@scripts/molecule.sh $(FULL)

lint: venv ## All gates: a minute
	@scripts/lint.sh

unit: venv ## Unit tests
	@python -m pytest

molecule: venv ## The molecule scenarios on real three-node labs
	@scripts/molecule.sh

clients: venv ## What is rendered, read by the real accelerate, DeepSpeed, NCCL, Open MPI and a browser
	@scripts/clients.sh

bench: venv ## Measure, and write docs/benchmarks.md
	@TORCH_INDEX="$${TORCH_INDEX-$$(python scripts/torch_index.py)}" python tests/bench/run.py $(SECTION)

clean: ## Take the lab down and leave nothing of it behind
	@scripts/clean.sh

distclean: clean ## clean, and the environment, images and caches
	@rm -rf .venv .cache build runs .mypy_cache .pytest_cache .ruff_cache
	@if command -v podman >/dev/null; then podman images -q --filter reference=localhost/torchfleet-lab | sort -u | xargs -r podman rmi -f; fi
