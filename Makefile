# From a fresh clone, `make test` is all it takes: Python 3.11, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready
# Number of test processes: one more than cores, since tests often wait for servers and timers.
WORKERS ?= 3

# On a busy machine, a test can fail because of time alone. So in continuous integration, failed
# tests are repeated once, alone; pytest's exit code 1 means that tests failed, and nothing else.
AGAIN := || { test $$? = 1 && test "$$CI" = true && echo "Repeating the failed tests, alone:" \
	&& $(BIN)/pytest --last-failed --last-failed-no-failures=none; }

# Without byte code on disk, every process that a test starts would compile its libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: vendor types mypy contracts clients test test-long test-local mutate serve chaos check format docs bench attack evals lock clean

test: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "not local and not long" $(ARGS) $(AGAIN)

# What the fast lane leaves out: PostgreSQL variants, long storms, exhaustive orders, and hypothesis
# tests with all examples.
test-long: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "(long or fuzz) and not local" $(ARGS) $(AGAIN)

# Removes each guarantee of tests/mutations.toml from a copy, and runs the tests that must fail;
# `make mutate ARGS="gate"` selects by a word of the name. An interrupted run continues.
mutate: $(READY)
	$(BIN)/python -m tests.mutate $(ARGS)

# With the real local model; one process, since it uses all cores but one.
test-local: $(READY)
	$(BIN)/pytest -m local $(ARGS)

# With the local model, on SQLite in segue-data; it prints its address.
serve: $(READY)
	$(BIN)/segue serve $(ARGS)

# Two minutes of kills on each database; prints the results in figures.
chaos: $(READY)
	SEGUE_CHAOS_SECONDS=120 SEGUE_TEST_SECONDS=900 $(BIN)/pytest tests/chaos $(ARGS)

# mypy uses one core for a minute, so the others run in parallel.
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs=2 --output-sync=target mypy contracts types
	$(MAKE) test

mypy: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The tables of settings; a test fails if they are outdated.
docs: $(READY)
	$(BIN)/python -m tests.settings.tables

bench: $(READY)
	$(BIN)/python -m bench.core
	$(BIN)/python -m bench.journal
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.memory
	$(BIN)/python -m bench.runtime
	$(BIN)/python -m bench.server
	$(BIN)/python -m bench.wire
	$(BIN)/python -m bench.transfer
	$(BIN)/python -m bench.compression
	$(BIN)/python -m bench.long_life
	$(BIN)/python -m bench.page
	$(BIN)/python -m bench.state

# What hostile clients cost other users; about three minutes.
attack: $(READY)
	$(BIN)/python -m bench.attacks

evals: $(READY)
	$(BIN)/python -m evals.retrieval
	$(BIN)/python -m evals.naturalness
	$(BIN)/python -m evals.decider

# For developers with node: the page's libraries from locked packages, and its types.
tools/web/node_modules: tools/web/package-lock.json
	cd tools/web && npm ci --silent --no-audit --no-fund
	touch $@

vendor: tools/web/node_modules
	cd tools/web && npm run --silent vendor && npm run --silent declare

types:
	@if command -v npm > /dev/null; then $(MAKE) --silent tools/web/node_modules \
		&& cd tools/web && npm run --silent types; \
	else echo "The types of the page were not checked: there is no npm."; fi

# The JavaScript clients of tests/clients, once per lock, into the user's cache folder.
clients: $(READY)
	$(BIN)/python -m tests.clients.packages $(ARGS)

# Names, versions and hashes, no addresses: the lock works with any registry.
lock: $(READY)
	$(UV) pip compile --quiet --universal --generate-hashes --all-extras --group dev \
		--custom-compile-command "make lock" $(ARGS) pyproject.toml --output-file requirements.lock

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	test -x $(UV) || $(BIN)/python -m pip install --quiet --require-hashes -r $(VENV)/uv.txt
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
