# Two commands: `make demo` and `make test`. Each makes .venv and installs everything it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test check gpu fast docs install hooks clean

demo: $(INSTALLED)
	$(BIN)/revar demo

test: check

check: fast docs
	$(BIN)/pytest -n 2

# On a machine with a GPU: the tests that only it can run.
gpu: $(INSTALLED)
	$(BIN)/pytest -m gpu

# What pre-commit runs: everything that needs no training.
fast: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, into site/: every page in its place, every link and anchor there.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

install: $(INSTALLED)

hooks: $(INSTALLED)
	$(BIN)/pre-commit install

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable ".[vision,dev]"
	$(BIN)/python -m compileall -q src
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache revar-demo site
