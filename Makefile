# Every target sets up what it needs in .venv; nothing outside this folder is touched.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q
PIP_FLAGS ?= -q --disable-pip-version-check

.PHONY: demo test quick lint bench clean

demo: $(VENV)/.run
	@$(PY) demo/run.py

test: $(VENV)/.dev
	$(PYTEST) -n 2 --timeout 600

quick: $(VENV)/.dev
	$(PYTEST) -n 2 --timeout 120 -m "not slow and not bench"

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

bench: $(VENV)/.dev
	@$(PY) benchmarks/firing_rate.py

clean:
	rm -rf $(VENV) out build *.egg-info

# A Python without ensurepip (some distributions split it off) still has pip outside the venv.
$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tileloom needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@echo "setting up $(VENV) (once) ..."
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	  else $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV) install $(PIP_FLAGS) pip; fi

$(VENV)/.run: pyproject.toml | $(PY)
	@$(PY) -m pip install $(PIP_FLAGS) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(PY)
	@$(PY) -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@ $(VENV)/.run
