# `make lab` serves the course, `make test` runs everything CI runs. Both set up `.venv` first, once.
#
#   make lab  instructor  test  test-fast  test-all  lint  demo  doctor  size  exercises  notebooks  translations  slides  site  clean
#
# Worth overriding:  PYTHON=python3.12   VENV=.venv-mine   TORCH=torch==2.12.0   LAB_ARGS="--no-browser --port=9000"

VENV ?= .venv
TORCH ?= torch==2.13.0
LAB_ARGS ?=
SERVED ?= $(CURDIR)
WORKERS ?= 2
EXTRAS ?= course,dev

# The conda environment made from environment.yml, when it is the active one, is used as it is.
CONDA_NAME := $(shell sed -n 's/^name: *//p' environment.yml)
ifeq ($(CONDA_DEFAULT_ENV)$(if $(CONDA_PREFIX),,-none),$(CONDA_NAME))
ENV := $(CONDA_PREFIX)
else
ENV := $(VENV)
endif
BIN := $(ENV)/bin
STAMP := $(ENV)/.course-installed

# The first Python of 3.11 to 3.15 that runs and can make an environment (a pyenv shim may be there and not run),
# and is not free-threaded.
CAN_MAKE_VENV := import sys, sysconfig, venv, ensurepip; \
	sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 15) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
find_python = $(shell for p in python3.11 python3.12 python3.13 python3.14 python3.15 python3 python \
	"$$HOME"/.pyenv/versions/3.1[12345].*/bin/python; do "$$p" -c '$(CAN_MAKE_VENV)' 2>/dev/null && echo "$$p" && break; done)
# torch 2.13 has no build for Python 3.15. Whoever names a TORCH gets that one.
PYTHON_VERSION = $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CHOSEN_TORCH = $(if $(and $(filter file,$(origin TORCH)),$(filter 3.15,$(PYTHON_VERSION))),torch==2.15.0,$(TORCH))
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=120 --nbval-sanitize-with tests/nbval_sanitize.cfg \
	-p course_lib.grading.nbval_versions
NOTEBOOKS = $(wildcard notebooks/*.ipynb solutions/*/*.ipynb)
# `make lab COURSE_LANGUAGE=zh` serves the course in Chinese (docs/design/languages.md).
COURSE_LANGUAGE ?=
EDITION := $(filter-out en,$(firstword $(subst _, ,$(COURSE_LANGUAGE))))
START := notebooks/$(if $(EDITION),$(EDITION)/)00_start_here.ipynb

.DEFAULT_GOAL := help
.PHONY: help setup lab instructor learner test test-browser test-fast test-all test-notebooks lint demo doctor size exercises exercises-check notebooks translations site cheat-sheet slides test-lab clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

setup: $(STAMP) ## make the environment, without starting anything

$(BIN)/python:
	@p="$(if $(PYTHON),$(PYTHON),$(find_python))"; \
	if [ -z "$$p" ]; then echo "No Python 3.11, 3.12, 3.13, 3.14 or 3.15 that can make an environment was found. Install one (on Debian and Ubuntu: python3 python3-venv), or name one: make lab PYTHON=path-to-python"; exit 1; fi; \
	echo "Making $(ENV) with $$($$p --version)"; $$p -m venv $(ENV)

# nbgrader's menus and buttons in JupyterLab serve those who hand out and mark; on a learner's page they lead nowhere.
INSTRUCTOR := $(ENV)/.course-instructor
nbgrader = $(BIN)/jupyter labextension $(1) --level=sys_prefix @jupyter/nbgrader >/dev/null 2>&1 || true

# A command that is silent for minutes, with a dot for every ten seconds.
waiting = { (while sleep 10; do printf .; done) & dots=$$!; $(1); status=$$?; kill $$dots 2>/dev/null; echo; [ $$status -eq 0 ]; }

# torch first and pinned: the newest torch with all of CUDA is several GB. A torch that is there already stays.
$(STAMP): pyproject.toml course_lib/grading/kernelspec.py $(wildcard course_lib/*/_*.c) | $(BIN)/python
	@$(BIN)/python -c "import importlib.metadata as m; m.version('torch')" 2>/dev/null || { echo "Step 1 of 2: $(CHOSEN_TORCH), 200 MB to several GB. This takes some minutes; a dot is ten seconds."; $(call waiting,$(PIP) "$(CHOSEN_TORCH)"); }
	@echo "Step 2 of 2: course_lib, JupyterLab and what else the course needs. Again some minutes."; $(call waiting,$(PIP) -e '.[$(EXTRAS)]' $$($(BIN)/python course_lib/versions.py))
	@$(BIN)/python course_lib/grading/kernelspec.py >/dev/null
	@$(BIN)/python course_lib/grading/lab_saves.py >/dev/null
	@$(BIN)/jupyter labextension disable --level=sys_prefix "@jupyterlab/apputils-extension:announcements" >/dev/null 2>&1 || true # no question about news
	@test -e $(INSTRUCTOR) || { $(call nbgrader,disable); }
	@touch $@

instructor: $(STAMP) ## show nbgrader's menus in JupyterLab, for those who teach (`make learner` hides them)
	@$(call nbgrader,enable)
	@touch $(INSTRUCTOR)
	@echo "JupyterLab shows nbgrader's menus from its next start on."

learner: $(STAMP) ## hide nbgrader's menus in JupyterLab again
	@$(call nbgrader,disable)
	@rm -f $(INSTRUCTOR)

# Trusted, for Lab shows no stored picture of a notebook that is not; and the address that it prints opens the first lesson.
# The path is for cells (`!course check 1`) and terminals. A bash of its own would set it anew, so bash is told what to read.
lab: export COURSE_BIN := $(abspath $(BIN))
lab: export COURSE_LANGUAGE := $(COURSE_LANGUAGE)
lab: $(STAMP) ## serve the course in JupyterLab (COURSE_LANGUAGE=zh: in Chinese)
	@$(if $(EDITION),$(BIN)/course translate >/dev/null)
	@$(BIN)/jupyter trust notebooks/*.ipynb $(if $(EDITION),notebooks/$(EDITION)/*.ipynb) >/dev/null
	-@$(BIN)/course start # a copy of each exercise in work/, where there is none
	-@$(BIN)/python course_lib/grading/lab_saves.py >/dev/null # an environment that was made before there was this
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter lab --LabApp.default_url=/lab/tree/$(START) --ServerApp.root_dir="$(SERVED)" \
	--ServerApp.terminado_settings="$$(case "$$(basename "$${SHELL:-bash}")" in (bash|sh) echo '{"shell_command": ["bash", "--rcfile", "$(CURDIR)/deploy/terminal.bashrc"]}';; (*) echo '{}';; esac)" \
	$(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

test: $(STAMP) lint size exercises-check ## all that CI runs: lint, size, exercises, tests, notebooks
	$(BIN)/python -m pytest tests -q -n $(WORKERS) --dist loadscope --no-loadscope-reorder
	@$(MAKE) --no-print-directory test-browser test-notebooks

test-notebooks: $(STAMP) ## run every notebook and compare its outputs with the stored ones
	@if [ -z "$(NOTEBOOKS)" ]; then echo "There are no notebooks yet."; else \
	$(BIN)/python -m pytest $(NBVAL) -q -n $(WORKERS) --dist loadscope $(NOTEBOOKS); fi

BROWSER = $(shell for b in $$CHROMIUM chromium google-chrome; do command -v "$$b" && break; done)
test-browser: $(STAMP) ## pictures and widgets in a headless browser, where there is one
	@if [ -z "$(BROWSER)" ]; then echo "No chromium here: the tests that need a browser are not run."; else \
	{ $(BIN)/python -c "import playwright" 2>/dev/null || $(PIP) playwright; } && \
	COURSE_BROWSER=1 $(BIN)/python -m pytest -q $$(grep -lE "\((page|browser)\b|, (page|browser)\b" tests/00_viz/test_*.py); fi

test-fast: $(STAMP) ## unit tests only, without the slow ones
	$(BIN)/python -m pytest tests -q -n $(WORKERS) --dist loadscope -m "not slow"

# What depends on the interpreter's bytecode, on every Python we support: each gets its own environment.
BYTECODE_TESTS = $(wildcard tests/02* tests/03* tests/04*)
test-all: test ## the whole suite, then the bytecode tests on each Python from 3.11 to 3.15 that is here
	@absent=; for v in 3.11 3.12 3.13 3.14 3.15; do \
	p=; for c in python$$v "$$HOME"/.pyenv/versions/$$v.*/bin/python; do "$$c" -c 'import venv, ensurepip' 2>/dev/null && p="$$c" && break; done; \
	if [ -z "$$p" ]; then absent="$$absent $$v"; continue; fi; \
	echo "== Python $$v"; $(MAKE) --no-print-directory test-bytecode PYTHON="$$p" VENV=.venv-$$v CONDA_PREFIX= || exit 1; done; \
	if [ -n "$$absent" ]; then echo "Not on this machine, so their bytecode tests were not run: Python$$absent"; fi

.PHONY: test-versions
ROWS ?=
test-versions: ## the tests with other versions, each in its own environment: ROWS=newest, ROWS=--list
	@python3 tests/tools/version_matrix.py $(ROWS)

.PHONY: test-bytecode
test-bytecode: $(STAMP)
	@if [ -z "$(BYTECODE_TESTS)" ]; then echo "There are no bytecode tests yet."; else $(BIN)/python -m pytest $(BYTECODE_TESTS) -q -n $(WORKERS) --dist loadscope; fi

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check course_lib tests
	$(BIN)/mypy

demo: $(STAMP) ## one function from bytecode to kernel, in the terminal
	$(BIN)/python -m course_lib demo

doctor: $(STAMP) ## what this machine has and which tier it gets
	$(BIN)/python -m course_lib doctor

size: ## lines by room (a report, no limit)
	@if [ -x $(BIN)/python ]; then $(BIN)/python tests/tools/house_size.py; else python3 tests/tools/house_size.py; fi

exercises: $(STAMP) ## generate exercises/ from solutions/
	$(BIN)/python -m course_lib exercises

exercises-check: $(STAMP)
	$(BIN)/python -m course_lib exercises --check

notebooks: $(STAMP) ## run every notebook top to bottom and store its outputs (on Python 3.11), then write `make translations`
	$(BIN)/python -m course_lib.grading.store $(NOTEBOOKS)
	$(BIN)/course translate

translations: $(STAMP) ## the lessons in other languages (notebooks/zh/), from the stored English ones; runs no cell
	$(BIN)/course translate

SITE_STAMP := $(ENV)/.site-installed
$(SITE_STAMP): $(STAMP)
	@echo "Installing what the site and the slides need"; $(PIP) -e '.[site]'
	@touch $@

site: $(SITE_STAMP) ## the course as pages to browse offline, build/site
	$(BIN)/python docs/site/build.py

cheat-sheet: $(SITE_STAMP) ## docs/cheat-sheet.html and .pdf from docs/cheat-sheet.md (the PDF needs chromium)
	$(BIN)/python docs/site/cheat_sheet.py

slides: $(SITE_STAMP) ## lessons as slides with speaker notes, build/slides (needs no network to show)
	$(BIN)/python -m course_lib slides

test-lab: $(STAMP) ## run the first lesson in a headless browser (needs playwright and chromium)
	@$(BIN)/python -c "import playwright" 2>/dev/null || $(PIP) playwright
	$(BIN)/python tests/tools/lab_in_browser.py $(START) $(ENV)/lab.png

clean: ## remove what the build left; environments stay
	rm -rf build *.egg-info course_lib/frames/*.so course_lib/runtime/*.so .pytest_cache .mypy_cache .ruff_cache
