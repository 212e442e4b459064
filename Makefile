# The two commands that set everything up: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests, a file at a time; each gets its share of the cores (tests/conftest.py).
PROCESSES ?= 2

.PHONY: run test pictures clean

run: $(VENV)/.installed-run
	$(BIN)/python -m gramless.cli reproduce all --quick --out gramless-report

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --cov --cov-report=
	$(BIN)/python -m coverage report

pictures: $(VENV)/.installed-dev
	$(BIN)/python docs/pictures.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[cli]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	touch $@ $(VENV)/.installed-run

clean:
	rm -rf $(VENV) gramless-report build dist .coverage* .mypy_cache .pytest_cache .ruff_cache
