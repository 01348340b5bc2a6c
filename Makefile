# `make difftest` and `make test` do all the set-up: the first call makes .venv, a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Where the environment forbids bytecode, each of the many processes of a run compiles all modules anew: a third of the time.
export PYTHONDONTWRITEBYTECODE :=

# Coverage in percent that each room has at least; below it, `make test COVERAGE=1` fails.
LEAST := numba_kernels:72 reference:83 difftest:94
COVERAGE ?=
# Processes, each with one thread: more threads than cores make the many small torch calls slower.
JOBS ?= $(shell n=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
# A process starts on a stretch of neighbouring tests, which share what they compile, and ends on tests of others.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# Seconds after which no test begins; empty: all run. The order is drawn anew for every commit.
BUDGET ?=
ORDER ?= $$(git rev-parse HEAD)
SLOW = $(PYTEST) -m slow $(if $(BUDGET),--budget $(BUDGET) --order-seed "$(ORDER)") $(ARGS)
BITS := tests/numba_kernels/test_bits.py tests/benchmarks/test_bits_on_gpu.py

.PHONY: difftest test lint ci slow bits pages wheel floors sanitize faults fuzz clean

difftest: $(VENV)/.installed
	$(BIN)/python cli.py difftest $(ARGS)

test: $(VENV)/.installed-test
	$(PYTEST) $(if $(COVERAGE),--cov --cov-report=) $(ARGS)
ifneq ($(COVERAGE),)
	@for room in $(LEAST); do \
	  name=$${room%%:*} least=$${room##*:}; \
	  printf 'coverage of %s in percent, at least %s: ' "$$name" "$$least"; \
	  $(BIN)/python -m coverage report --include="$$name/*" --format=total --fail-under="$$least" || exit; \
	done
endif

# What must hold before any test runs: style, types, which room imports which, and the counts of .ci/shape.py.
lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python .ci/shape.py

# All that a change must pass, in at most 15 minutes on two cores.
ci:
	$(MAKE) lint
	$(MAKE) test COVERAGE=1
	$(MAKE) pages
	$(MAKE) bits BUDGET=60
	$(MAKE) slow BUDGET=60

# Tests of over ten seconds, but for the record of bits.
slow: $(VENV)/.installed-test
	$(SLOW) $(addprefix --ignore=,$(BITS))

# The record of output bits, every operator, dtype, contract and width.
bits: $(VENV)/.installed-test
	$(SLOW) $(BITS)

# Generated pages and blocks are what the code and the result files say.
pages: $(VENV)/.installed-test
	$(BIN)/python cli.py docs --check

# A wheel that brings machine code for these architectures, of which only sm_90 ever ran; no GPU is needed. Two core-hours for all.
ARCHS := sm_80,sm_90,sm_100,sm_120
wheel: $(VENV)/.installed-test
	rm -rf build numba_kernels/cubins
	$(BIN)/python -m numba_kernels.build --arch $(ARCHS)
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

# The kernels under NVIDIA's compute-sanitizer, on a GPU machine; LOG=FILE keeps all that it says.
sanitize:
	benchmarks/sanitize.sh $(LOG)

# Every call of every place at which the tester meets the system fails once: minutes.
faults: $(VENV)/.installed-test
	$(BIN)/python benchmarks/faults.py benchmarks/results/faults.jsonl

# Made-up input for the readers and the public functions, for so many seconds in all.
SECONDS ?= 60
fuzz: $(VENV)/.installed-test
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q --timeout 0 tests/fuzz

# The lowest versions that pyproject.toml allows, in a venv of their own, run the suite once. Gigabytes: torch with CUDA.
FLOORS := out/floors
floors:
	$(PYTHON) -m venv $(FLOORS)
	$(PYTHON) .ci/floors.py > $(FLOORS)/requirements.txt
	$(FLOORS)/bin/python -m pip install -q -r $(FLOORS)/requirements.txt
	OMP_NUM_THREADS=1 $(FLOORS)/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

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
	rm -rf $(VENV) $(FLOORS) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis .coverage
