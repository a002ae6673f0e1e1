# make demo: the identity study from a bare clone, with its report.   make test: the whole suite.
PYTHON ?= python3
BIN := .venv/bin
PIN := -c requirements/constraints.txt

.PHONY: demo test lint types imports docs gallery check bench browser clean

demo: .venv/installed
	$(BIN)/anchorlab study anchor/identity --profile quick

test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2

.venv/installed: pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) -e '.[dev,docs,interop]'
	touch $@

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

imports: .venv/installed-dev
	$(BIN)/lint-imports

docs: .venv/installed-dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

# the published results: runs every study (two and a half hours on two cores, one for paper-start) and writes what the docs
# and the README show of them
gallery: .venv/installed
	$(BIN)/anchorlab study 'anchor/*' 'truncation/*' 'retrieval/*' --profile quick
	$(BIN)/anchorlab study anchor/learners --profile paper-start
	$(BIN)/python docs/gallery/build.py

check: lint types imports docs

# every number that the README and the docs give about speed
bench: .venv/installed-dev
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/learners.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/recall.py --size paper
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/detectors.py --out docs/how_to/detectors-roc.svg

# pages are tested in headless Chromium; without it those tests say so and are skipped
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null)

clean:
	rm -rf .venv docs/_build build
