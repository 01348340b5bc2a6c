# `make difftest` and `make test` do all the set-up: the first call makes .venv, a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: difftest test lint bench clean

difftest: $(VENV)/.installed
	$(BIN)/python cli.py difftest $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints-cpu.txt -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints-cpu.txt -e '.[test,report]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
