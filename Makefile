# Each target does its own set-up: everything is installed into .venv, with the versions of constraints.txt.
# PYTHON=/path/to/python uses that environment as it is and installs nothing.

ifeq ($(origin PYTHON),undefined)
PYTHON := .venv/bin/python
READY := .venv/installed
READY_FOR_CUDA := .venv/installed-for-cuda
endif

.PHONY: install compare test test-all lint docs record validate cuda-check cuda-check-tests cuda-check-kernels gpu

compare: $(READY)
	$(PYTHON) compare.py

install: $(READY)

# Every kind of check, in minutes
test: MARKED = not slow and not cuda
test-all: MARKED = not cuda
test test-all: $(READY)
	$(PYTHON) -m pytest -q -m '$(MARKED)' --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m pyright --pythonpath $(PYTHON)

# Figures of README.md and docs/, from the records in results/.
docs: $(READY)
	$(PYTHON) -m tools.docs

# One record anew: make record NAME=cpu-default
record: $(READY)
	$(PYTHON) -m tools.record $(NAME)

# A/A test and power test of the timing protocol. An hour.
validate: $(READY)
	$(PYTHON) -m tools.validate_protocol --json results/validation.json

# On a GPU, in less than 10 minutes each: the comparison; the tests that need one; other layouts and racecheck.
# PYTHON=python3 installs nothing: what docs/gpu.md lists has to be there.
FOLDER ?= results
cuda-check cuda-check-tests cuda-check-kernels: gpu $(READY_FOR_CUDA)
	$(PYTHON) -m tools.cuda_check $(patsubst cuda-check-%,%,$(filter-out cuda-check,$@)) --folder $(FOLDER)

# before gigabytes are installed
gpu:
	@nvidia-smi > /dev/null 2>&1 || { echo "no CUDA device: nvidia-smi names none"; exit 1; }

.venv/installed: pyproject.toml constraints.txt
	python3 -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)) and "Python 3.11 or 3.12 is needed, this is " + sys.version)'
	@echo 'installing JAX, PyTorch and their tools into .venv: on Linux some gigabytes, unless pip finds the CPU build of PyTorch (README.md)'
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

.venv/installed-for-cuda: .venv/installed
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[test,cuda]'
	touch $@
