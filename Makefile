# Needs python3 (3.11 or later), pip and make; everything else goes into $(VENV).

PYTHON3 ?= python3
VENV ?= .venv
EXTRAS ?= test
TESTS ?= tests
PYTHON = $(VENV)/bin/python
# A module's tests share what they compile, and stay together. Each worker takes up to 4 GB.
WORKERS = -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Where it is set, each of the many processes of the tests compiles all modules anew.
export PYTHONDONTWRITEBYTECODE =

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

demo: $(VENV)/.installed compiled ## plain and drafted decoding side by side, each byte coloured by who wrote it
	$(PYTHON) -m bytelax demo

test: $(VENV)/.installed-$(EXTRAS) compiled ## run the tests that take seconds
	$(PYTHON) -m pytest $(WORKERS) -m "not slow and not exhaustive" $(TESTS)

test-slow: $(VENV)/.installed-$(EXTRAS) compiled ## run the tests that take minutes
	$(PYTHON) -m pytest $(WORKERS) -m "slow and not exhaustive" $(TESTS)

test-all: $(VENV)/.installed-$(EXTRAS) compiled ## run both
	$(PYTHON) -m pytest $(WORKERS) -m "not exhaustive" $(TESTS)

test-exhaustive: $(VENV)/.installed-$(EXTRAS) compiled ## run what CI has no time for: before a release
	$(PYTHON) -m pytest $(WORKERS) -m exhaustive $(TESTS)

native: $(VENV)/.installed compiled ## compile the kernels for processors, where there is a C++ compiler

lint: $(VENV)/.installed-lint ## check style, format and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

docs: $(VENV)/.installed-docs ## build the site into site/; a broken link or an old table fails
	$(PYTHON) -m experiments.tables --check
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "open site/index.html"

# A torch for CPUs only: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make parity
parity: ## compare with transformers, run in lm-evaluation-harness: an environment of its own
	$(MAKE) test-all VENV=$(VENV) EXTRAS=test,parity,eval \
	  TESTS="tests/test_live_parity.py tests/docs/test_pages.py::test_python[docs/evaluation.md]"

aot: ## compile kernels and decode loops for TPU and H200 without the hardware; count what they do
	$(MAKE) $(VENV)/.installed-aot compiled VENV=$(VENV)
	$(PYTHON) -m experiments.studies.compile_kernels
	$(PYTHON) -m experiments.studies.compile_rounds

aot-pods: ## compile training and decoding for the smallest pods, a layer of each stack
	$(MAKE) $(VENV)/.installed-aot compiled VENV=$(VENV)
	$(PYTHON) -m experiments.studies.compile_pods

aot-full: ## the same at more shapes and full depth; writes their results
	$(MAKE) $(VENV)/.installed-aot compiled VENV=$(VENV)
	$(PYTHON) -m experiments.studies.compile_kernels --full
	$(PYTHON) -m experiments.studies.compile_rounds --full
	$(PYTHON) -m experiments.studies.compile_pods --full

# What they install is in no one's way elsewhere.
parity: VENV = .venv-parity
aot aot-pods aot-full: VENV = .venv-aot

clean: ## remove the environments and the caches
	rm -rf site .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The target `compiled` below does it where it is seen, and by the jaxlib of the environment.
$(VENV)/.installed $(VENV)/.installed-%: export BYTELAX_NATIVE = 0

$(VENV)/.installed: pyproject.toml | $(VENV)/.made
	$(PYTHON) -m pip install --quiet --no-compile --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(VENV)/.made
	$(PYTHON) -m pip install --quiet --no-compile --editable '.[$*]'
	@touch $@

# After one of the above, whose jaxlib has the headers.
compiled:
	@$(PYTHON) kernels/build_native.py

# The first Python that runs and is new enough. Debian's may come without the pip for a venv.
$(VENV)/.made:
	@for python in $(PYTHON3) python3.13 python3.12 python3.11 python3.14; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$(VENV): $$($$python --version)"; \
	    $$python -m venv $(VENV) >/dev/null 2>&1 \
	      || { $$python -m venv --clear --without-pip $(VENV) \
	        && $$python -m pip --python $(PYTHON) install --quiet pip; } \
	      || exit 1; \
	    echo '*' >$(VENV)/.gitignore; \
	    touch $@; \
	    exit; \
	  fi; \
	done; \
	echo "bytelax needs Python 3.11 or later: make PYTHON3=/path/to/python3.11" >&2; \
	exit 1

.PHONY: help demo test test-slow test-all test-exhaustive native compiled lint docs parity aot aot-pods aot-full clean
