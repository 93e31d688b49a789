# Two commands do everything: `make quickstart` and `make test`. PYTHON=python3.12 chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: quickstart test check gl chromium clean

quickstart: $(VENV)/.quickstart gl
	$(BIN)/timerewarder quickstart

test: $(VENV)/.test gl chromium
	$(BIN)/python -m pytest

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.10-3.13, or name one with make PYTHON=..."; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "$$($(PYTHON) --version) is not supported: choose Python 3.10-3.13 with make PYTHON=..."; exit 2; }
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install -y python3-venv"; exit 2; }

$(VENV)/.quickstart: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing timerewarder with Meta-World (about 1 GB of packages the first time)"
	@$(PIP) --editable '.[metaworld]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing timerewarder with everything its tests need (about 1 GB of packages the first time)"
	@$(PIP) --editable '.[all,check]'
	@touch $@ $(VENV)/.quickstart

# Headless OpenGL: install it where that is allowed, otherwise say what to install.
gl:
	@sh tools/headless-gl.sh

# The browser that the page is tested in.
chromium:
	@sh tools/chromium.sh

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
