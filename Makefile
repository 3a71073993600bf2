# Each target does its own set-up: everything is installed into .venv, with the versions of constraints.txt.
# PYTHON=/path/to/python uses that environment as it is and installs nothing.

ifeq ($(origin PYTHON),undefined)
PYTHON := .venv/bin/python
READY := .venv/installed
endif

.PHONY: install compare test lint cuda-check trial

compare: $(READY)
	$(PYTHON) compare.py

install: $(READY)

test: $(READY)
	$(PYTHON) -m pytest -q --numprocesses 2 --dist loadfile

lint: $(READY)
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m pyright --pythonpath $(PYTHON)

# The protocol on trial: no difference where there is none, and 5 % found where it is planted. An hour.
trial: $(READY)
	$(PYTHON) -m shared.bench.trial --json results/trial.json | tee results/trial.txt

# The tests that need a GPU, and a comparison recorded under the GPU's name.
cuda-check: $(READY)
	@$(PYTHON) compare.py --device cuda --list > /dev/null || { echo "no CUDA device"; exit 1; }
	$(PYTHON) -m pytest -q -m cuda
	name=$$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' ' '-'); \
	$(PYTHON) compare.py --device cuda --json "results/$$name.json" | tee "results/$$name.txt"

.venv/installed: pyproject.toml constraints.txt
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or 3.12 is needed, this is " + sys.version)'
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@
