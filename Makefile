# Two commands: `make demo` and `make test`. Each makes .venv and installs everything it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test check fast install hooks clean

demo: $(INSTALLED)
	$(BIN)/revar demo

test: check

check: fast
	$(BIN)/pytest -n 2

# What pre-commit runs: everything that needs no training.
fast: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache revar-demo
