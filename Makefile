# Every target sets itself up: the first run makes .venv and installs into it, later runs find it done and need no network.

# `make test PYTHON=python3.12` has an environment of its own, .venv-3.12. A name that does not run is looked up in pyenv, which runs only the
# versions that were chosen. What is found: "-3.12 PATH".
FOUND := $(if $(PYTHON),$(shell for python in '$(PYTHON)' "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/'$(PYTHON)'; do \
	"$$python" -c 'import sys; print("-%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null && break; done))
$(if $(PYTHON),$(if $(FOUND),,$(error PYTHON=$(PYTHON) does not run: name a Python 3.11 or newer)))
OTHER := $(firstword $(FOUND))
CHOSEN := $(wordlist 2,99,$(FOUND))
VENV := .venv$(OTHER)
REAL := .venv-real$(OTHER)
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
# Many tests wait for processes and times: five at a time keep two cores busy.
TEST_JOBS ?= 5
CHECKED_CORE := build/checked$(OTHER)
CHECKED := src tests packaging setup.py docs/conf.py $(wildcard demo bench sim chaos examples)
SEEDS ?= 1000
FIRST ?= 1
SECONDS ?= 180
MINUTES ?= 10
FUZZ_MINUTES ?= 5
# Some machines forbid Python to save bytecode, and then each of the hundreds of processes that tests start compiles all it imports again.
export PYTHONDONTWRITEBYTECODE :=
# What runs with the compiled core in `make test`: the core's own tests, some seeds and mutants of the simulators, and some calls over sockets.
COMPILED_TESTS ?= tests/wire tests/broker tests/server/test_faults.py tests/client/test_client.py tests/worker/test_worker.py tests/journal/recording/test_rows.py tests/journal/recording/test_tee.py \
	$(addprefix tests/protocols/,bridge/test_session.py dcp/test_session.py emqp/test_session.py mdp/test_mdp1.py mdp/test_mdp2.py mdp/test_dialogues.py mdx/test_session.py memo/test_session.py) \
	$(addprefix tests/protocols/test_,detect.py extensions.py extension_keys.py fast_paths.py registry.py) \
	$(addprefix tests/sim/test_,seeds.py::test_seeds[1] durable.py::test_some_seeds_hold[1] memoised.py::test_seeds_hold) \
	tests/sim/test_simulator.py::test_the_compiled_core_tells_the_same_story_as_the_interpreted_one \
	$(addprefix tests/sim/test_mutants.py::test_the_mutant_is_found,[no-fencing] [final-twice] [token-reused])
# mypyc's frames have no line number, which pytest's own tracebacks need.
COMPILED_PYTEST = -q -n $(TEST_JOBS) --dist loadgroup -p no:cacheprovider --tb=native -m "not long"

.DEFAULT_GOAL := help
.PHONY: help up demo compiled wheel test bytecode checked-core test-compiled test-core test-long test-stress real-peers bench chaos siege soak sim fuzz lint docs release clean bench-journal

help:  ## Show this list
	@echo "polydomo: one broker for the Majordomo family of protocols. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

up: $(VENV)/.base  ## Start a broker on tcp://127.0.0.1:5246 (stop it with Ctrl-C)
	@echo "==> Starting a broker"
	@$(PY) -m polydomo up

demo: $(VENV)/.all  ## Run clients and workers of every protocol against one broker
	@$(PY) demo/demo.py

compiled: $(VENV)/.all  ## Compile the core with mypyc into build/compiled; use it with PYTHONPATH=build/compiled
	@$(PY) packaging/compiled_core.py

wheel: $(PY)  ## Build a wheel with the compiled core in dist (COMPILED=0: without it, for machines without a C compiler)
	@POLYDOMO_COMPILED=$(or $(COMPILED),1) $(PIP) wheel -q --no-deps --wheel-dir dist .
	@ls dist/polydomo-*.whl

lint: $(VENV)/.all  ## Check style (ruff) and types (mypy --strict)
	@echo "==> ruff: style and common mistakes"
	@$(PY) -m ruff check $(CHECKED)
	@$(PY) -m ruff format --check --quiet $(CHECKED)
	@echo "==> mypy --strict: types"
	@$(PY) -m mypy --strict $(filter-out packaging setup.py,$(CHECKED))

# What installs (one core, and the network) and what compiles the core run side by side. Then come mypy, the compiled core's tests and the
# bytecode of the tests, each as soon as what it needs is there.
test: | $(PY)  ## Check style, types and layers, and run the tests
	@$(MAKE) -s -j 3 CORE=$(VENV)/.all checked-core real-peers lint bytecode test-compiled
	@echo "==> pytest: everything but the long forms"
	@$(PY) -m pytest -q -n $(TEST_JOBS) --dist loadgroup -m "not long" $(PYTEST_ARGS)

# In a fresh checkout, each of pytest's processes would compile all tests: 18 CPU seconds instead of 6.
bytecode: $(VENV)/.all
	@$(PY) -m pytest --collect-only -qq -p no:cacheprovider -m "not long" >/dev/null || true

# The core compiled with seams, not optimised. It is built again only after a change; without a C compiler this is left out.
checked-core: $(VENV)/.compiler
	@echo "==> mypyc: compiling the core for tests"
	@if $(PY) packaging/compiled_core.py --has-compiler; then $(PY) packaging/compiled_core.py --check --to $(CHECKED_CORE); fi

CORE ?= $(VENV)/.core
test-compiled: $(CORE) checked-core  ## Run the core's tests, seeds and mutants with the compiled core
	@echo "==> pytest: the compiled core"
	@if $(PY) packaging/compiled_core.py --has-compiler; then \
		PYTHONPATH=$(CHECKED_CORE) $(PY) -m pytest $(COMPILED_PYTEST) -o "pythonpath=$(CHECKED_CORE) ." $(COMPILED_TESTS); \
	else echo "there is no C compiler here: only the interpreted form was tested"; fi

# Without Spark, the pipeline, browsers and published programs, which need no second Python to be tested.
CORE_TESTS ?= tests/wire tests/model tests/protocols tests/broker tests/web tests/stores tests/client tests/worker tests/journal tests/sim tests/fuzz
test-core: $(VENV)/.core  ## Run the tests of the core, interpreted and compiled; PYTHON=python3.12 chooses another Python
	@echo "==> pytest: the core with $$($(PY) -V)"
	@$(PY) -m pytest -q -n $(TEST_JOBS) --dist loadgroup -p no:cacheprovider -m "not long" $(CORE_TESTS) $(PYTEST_ARGS)
	@$(MAKE) -s test-compiled

test-long: $(VENV)/.all  ## Run the full forms of the long tests (may take an hour)
	@echo "==> pytest: the long forms"
	@$(PY) -m pytest -q -m long --timeout 3600 -o faulthandler_timeout=3660 $(PYTEST_ARGS)
	@echo "==> pytest: the command line, each command by a Python of its own"
	@FRESH_PROCESSES=1 $(PY) -m pytest -q -n $(TEST_JOBS) --dist loadgroup -p no:cacheprovider -m "not long" tests/cli
	@echo "==> pytest: everything with the compiled core as it is released"
	@$(PY) packaging/compiled_core.py
	@PYTHONPATH=build/compiled $(PY) -m pytest $(COMPILED_PYTEST) -o "pythonpath=build/compiled ." $(PYTEST_ARGS)
	@echo "==> pytest: mutants, and everything else that replaces parts of the core, with the compiled core"
	@$(PY) packaging/compiled_core.py --check --to $(CHECKED_CORE)
	@PYTHONPATH=$(CHECKED_CORE) $(PY) -m pytest $(COMPILED_PYTEST) -o "pythonpath=$(CHECKED_CORE) ." $(shell grep -rl --include='test_*.py' replaces_core tests)
	@echo "==> simulator: $(SEEDS) seeds with the compiled core"
	@PYTHONPATH=build/compiled $(PY) -m sim.run --seeds $(SEEDS) --first $(FIRST) --jobs $(TEST_JOBS) --progress 100
	@PYTHONPATH=build/compiled $(PY) -m sim.durable --seeds $(SEEDS) --first $(FIRST)

# No test depends on how fast a machine is: each run takes something else away (tests/stress.py). Failed tests are not repeated.
test-stress: $(VENV)/.all  ## Run the tests on one core, at nice 19, beside busy processes, and while they are stopped repeatedly
	@for stress in --core --nice "--busy 4" "--stop 3"; do \
		echo "==> pytest: with $$stress"; \
		$(PY) -m tests.stress $$stress -- $(PY) -m pytest -q -n $(TEST_JOBS) --dist loadgroup -m "not long" $(PYTEST_ARGS) || exit 1; \
	done

real-peers: $(VENV)/.all $(REAL)/done  ## Install the published Majordomo programs that some tests run

bench-journal: $(VENV)/.all  ## Measure the cost of the journal, and the time to write and read ten million rows
	@$(PY) bench/journal.py cpu
	@$(PY) bench/journal.py rows

bench: $(VENV)/.all  ## Compare CPU per request and requests/s with other brokers
	@$(PY) bench/compare.py

chaos: $(VENV)/.all  ## Inject faults into real processes for SECONDS=180 and report the outcome of every call; SEED=1 chooses the faults
	@$(PY) -m chaos.run --seconds $(SECONDS) --seed $(or $(SEED),1) --crowd 5000

siege: $(VENV)/.all  ## Attack real brokers: measure the delay of an honest client and the broker's memory under each attack; FULL=1: at full size
	@$(PY) -m chaos.siege $(if $(FULL),--full)

soak: $(VENV)/.all  ## Run load with faults for MINUTES=10 and plot memory, files and latency in build/soak.svg; growth is a failure
	@$(PY) -m chaos.soak --minutes $(MINUTES) --seed $(or $(SEED),1)

sim: $(VENV)/.all  ## Run the simulator with SEEDS=1000 seeds, from seed FIRST=1 on
	@$(PY) -m sim.run --seeds $(SEEDS) --first $(FIRST) --jobs $(TEST_JOBS) --progress 100

fuzz: $(VENV)/.all  ## Fuzz every decoder for FUZZ_MINUTES=5 with hypothesis, and with atheris if it can be installed
	@$(PIP) install -qq atheris || echo "==> atheris does not install here: hypothesis alone"
	@$(PY) -m tests.fuzz.run --minutes $(FUZZ_MINUTES)

docs: $(VENV)/.all  ## Build the documentation site in build/docs; a broken link fails
	@$(PY) -m sphinx -q -W --keep-going -c docs -b html . build/docs
	@echo "==> build/docs/docs/index.html"

release: $(VENV)/.compiler  ## Build the sdist, wheels for every Python found, SBOM and checksums in dist, twice, and try each of them
	@$(PY) packaging/release.py $(RELEASE_ARGS)

clean:  ## Remove .venv, caches and build products
	rm -rf .venv .venv-* build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- setting up --------------------------------------------------------------------------------------------------------
# [all] includes the base, so its stamp counts for both; either is redone when the project's dependencies change.

# Files with the hashes of constraints.txt, and then polydomo itself. Python compiles a module when it is first imported: of the thousands that
# are installed, most never are (--no-compile).
define install
	@$(PY) packaging/constraints.py select $(1) > $(VENV)/pinned.txt
	@$(PIP) install -qq --no-compile --require-hashes --no-deps -r $(VENV)/pinned.txt
	@$(PIP) install -qq --no-compile --no-deps --no-build-isolation --editable .
endef

$(VENV)/.all: pyproject.toml constraints.txt | $(VENV)/.compiler
	@echo "==> Installing polydomo with everything its tests and demo need into $(VENV) (once)"
	$(call install,all)
	@touch $(VENV)/.base $(VENV)/.core $@

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/.compiler
	@echo "==> Installing polydomo with what the tests of its core need into $(VENV) (once)"
	$(call install,journal otel postgresql test compiler)
	@touch $@

# Before everything else, and small: what compiles the core.
$(VENV)/.compiler: constraints.txt | $(PY)
	@$(PY) packaging/constraints.py select compiler > $(VENV)/pinned.txt
	@$(PIP) install -qq --no-compile --require-hashes --no-deps -r $(VENV)/pinned.txt
	@touch $@

$(VENV)/.base: pyproject.toml constraints.txt | $(PY)
	@echo "==> Installing polydomo and what its journal needs into $(VENV) (once)"
	$(call install,journal build)
	@touch $@

# Where they cannot be installed, there is no stamp: the tests that need them are skipped, and the next run tries again.
$(REAL)/done: tests/real/install.py | $(PY)
	@echo "==> Installing majortomo, EventMQ, pyzmq-mdp and Hermes, which some tests run, into $(REAL) (once)"
	@$(PY) tests/real/install.py $(REAL)

# The first interpreter that is new enough and can make a virtual environment. A name that is found may still not run
# (pyenv's shims), so each is asked. PYTHON=... settles it by hand.
$(PY):
	@for python in $(if $(CHOSEN),'$(CHOSEN)',python3.11 python3 python3.12 python3.13 python3.14 python); do \
		if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			echo "==> Making $(VENV) with $$("$$python" -V 2>&1)"; \
			rm -f $(VENV)/.base $(VENV)/.core $(VENV)/.all $(VENV)/.compiler; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "polydomo needs Python 3.11 or newer with its venv module (on Debian and Ubuntu: apt install python3-venv)." >&2; \
	echo "$(if $(PYTHON),PYTHON=$(PYTHON) is older or lacks it.,None was found. Install one or name it: make PYTHON=/path/to/python3.11 ...)" >&2; \
	exit 1
