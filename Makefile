# Everything runs in .venv; PYTHON makes it. On a machine whose package index has several builds of torch, say which
# with TORCH_ARGS, for example TORCH_ARGS='--index-url ADDRESS_OF_THE_CPU_BUILDS'.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

export HF_HUB_OFFLINE = 1
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export DO_NOT_TRACK = 1

.PHONY: run test test-slow test-fast lint eval bench bench-pipeline serve install clean

install: $(INSTALLED)

$(INSTALLED): constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' $(TORCH_ARGS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(INSTALLED)
	@$(BIN)/gristmill model fetch
	@mkdir -p "$${GRISTMILL_DATA:-data}/inbox" && cp -R data/samples/. "$${GRISTMILL_DATA:-data}/inbox/"
	@$(BIN)/python -m flows.extract

# A model takes all cores for itself; the other tests share them.
test: $(INSTALLED)
	@$(BIN)/gristmill model fetch
	@$(BIN)/python -m pytest --numprocesses 2 tests/unit tests/durability
	@$(BIN)/python -m pytest -m 'not slow' tests/integration

# The embedded model on all sample tickets: minutes, on an otherwise idle machine.
test-slow: $(INSTALLED)
	@$(BIN)/python -m pytest -m slow tests/integration

test-fast: $(INSTALLED)
	@$(BIN)/python -m pytest --numprocesses 2 tests/unit

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# A Prefect server, the work pool, all deployments and a worker, until Ctrl-C.
serve: $(INSTALLED)
	@$(BIN)/gristmill model fetch
	@exec $(BIN)/python -m flows._serve

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Everything but the model: a file of a million lines all the way through. Takes five minutes.
bench-pipeline: $(INSTALLED)
	@$(BIN)/python bench/pipeline.py --records 1000000 $(BENCH_ARGS)

eval: $(INSTALLED)
	@$(BIN)/gristmill model fetch
	@$(BIN)/python bench/eval/table.py $(EVAL_ARGS)

bench: $(INSTALLED)
	@$(BIN)/gristmill model fetch
	@$(BIN)/python bench/speed.py $(BENCH_ARGS)
