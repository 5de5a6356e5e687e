# Each target sets up what it needs; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test quick test-all test-rest test-versions check docs bench clean

run: .venv/run        ## train the digits model, look at it, print the error and the report
	$(BIN)/thetax train digits
	$(BIN)/thetax look

test: .venv/test       ## format, lint, types, import direction; beside them quick tests, doctests, errata
	$(MAKE) --no-print-directory --jobs=2 check quick

quick: .venv/test
	$(BIN)/pytest

test-all: .venv/test check ## every test and every claim that needs no network
	$(BIN)/pytest -m 'not peer and not network'

test-rest: .venv/test  ## what make test leaves out; MINUTES=30 starts no test after so many minutes
	$(BIN)/pytest -m 'slow and not peer and not network' $(if $(MINUTES),--budget $(MINUTES))

test-versions: .venv/python ## the built wheel on Python 3.11 to 3.13, newest and oldest dependencies; NAME=3.12 runs one
	$(BIN)/python tests/versions.py $(NAME)

check: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

docs: .venv/test       ## write the API index, `__all__`, the syllabus and the errata from the code
	$(BIN)/python tests/api_reference.py
	$(BIN)/python -m thetax.claims docs

bench: .venv/bench     ## measure against peers; NAME=mlp runs one subject
	$(BIN)/python -m bench $(NAME)

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit("thetax needs Python 3.11 to 3.13; call make PYTHON=python3.12") if not (3, 11) <= sys.version_info < (3, 14) else 0'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[text]'
	@touch $@

.venv/test: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test]'
	@touch $@ .venv/run

.venv/bench: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[bench]'
	@touch $@ .venv/run

clean:
	rm -rf .venv runs build dist *.egg-info
