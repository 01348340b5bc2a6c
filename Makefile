# `make difftest` and `make test` do all the set-up: the first call makes .venv, a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
ROOMS := numba_kernels reference difftest

.PHONY: difftest test lint clean

difftest: $(VENV)/.installed
	$(BIN)/python cli.py difftest $(ARGS)

# Two processes, each with one thread: more threads than cores make the many small torch calls slower.
test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term $(ARGS)
	@for room in $(ROOMS); do \
	  echo "coverage of $$room: $$($(BIN)/python -m coverage report --include="$$room/*" --format=total) %"; \
	done

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints-cpu.txt | $(BIN)/python
	@echo "Installing into $(VENV); torch is large, so the first time takes minutes."
	$(BIN)/python -m pip install -q -c constraints-cpu.txt -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints-cpu.txt | $(BIN)/python
	@echo "Installing into $(VENV); torch is large, so the first time takes minutes."
	$(BIN)/python -m pip install -q -c constraints-cpu.txt -e '.[test]'
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
