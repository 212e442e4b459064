# The two commands that set everything up: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests, a file at a time; each gets its share of the cores (tests/conftest.py).
PROCESSES ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

.PHONY: run test coverage docs dist test-oldest test-nightly pictures clean

run: $(VENV)/.installed-run
	$(BIN)/python -m gramless reproduce all --quick --out gramless-report

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

# Tracing every line takes up to half as long again: a run of its own.
coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=
	$(BIN)/python -m coverage report

# The site, from the code, the pages, the examples and the committed records; a warning is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

# A wheel and a source archive, checked, and the wheel tried in an environment that has nothing else.
dist: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist build/clean
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet dist/*.whl
	cd build && clean/bin/python ../tests/smoke.py

# What needs neither an extra nor torch.
CORE := tests/approximation tests/_core/targets tests/inference tests/kernels/test_histogram.py \
	tests/linalg/operators/test_bordered.py tests/linalg/solvers/test_cg.py tests/svm/test_smo.py tests/estimators/test_svr.py \
	tests/estimators/test_fourier.py tests/estimators/test_risvo.py

test-oldest:
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet -e . -c constraints-oldest.txt pytest hypothesis psutil
	build/oldest/bin/python -m pytest -q -W default $(CORE)

# NIGHTLY_INDEX is the index of scikit-learn's nightly builds; its page on installing them has the address.
test-nightly:
	@test -n "$(NIGHTLY_INDEX)" || { echo "set NIGHTLY_INDEX to the index of scikit-learn's nightly builds"; exit 2; }
	$(PYTHON) -m venv build/nightly
	build/nightly/bin/python -m pip install --quiet -e . pytest hypothesis psutil
	build/nightly/bin/python -m pip install --quiet --pre --upgrade scikit-learn \
		--extra-index-url "$(NIGHTLY_INDEX)"
	build/nightly/bin/python -m pytest -q -W default $(CORE)

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

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -e '.[docs]' -c constraints.txt
	touch $@

clean:
	rm -rf docs/_build docs/_generated docs/gallery docs/reference docs/guide.md docs/papers.md docs/performance.md $(VENV) gramless-report build dist .coverage* .mypy_cache .pytest_cache .ruff_cache
