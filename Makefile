# Every target sets up what it needs in .venv; nothing outside this folder is touched.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q
INSTALL := -m pip install --disable-pip-version-check
COMPILE := $(PY) -m compileall -q dataflow gpu hwspecs mapping
LOG := $(VENV)/setup.log
QUIETLY = > $(LOG) 2>&1 || { cat $(LOG); echo "set-up failed; the log is $(LOG)"; exit 2; }

.PHONY: demo test quick lint bench clean

demo: $(VENV)/.run
	@$(PY) benchmarks/demo.py

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
	@$(PY) benchmarks/engines.py

clean:
	rm -rf $(VENV) out build *.egg-info

# A Python without ensurepip (some distributions split it off) still has pip outside the venv. The
# stamp comes last, so that a set-up that was stopped halfway starts afresh.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tileloom needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@echo "setting up $(VENV) (once) ..."
	@rm -rf $(VENV)
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	  else $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV) install -q pip; fi
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.made
	@$(PY) $(INSTALL) -e . $(QUIETLY)
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.made
	@echo "installing what the tests need (once) ..."
	@$(PY) $(INSTALL) -e '.[dev]' $(QUIETLY)
	@$(COMPILE)
	@touch $@ $(VENV)/.run
