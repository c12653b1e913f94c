# ParaNMT Lab. `make demo` sets everything up and does the main job; `make test` passes the tests. Both may be run again at any time.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
COMPLETE := .venv/.complete
APP ?= 1
# One thread for each process: two threads that share a busy core are slower than one.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup debian ray links demo app lab docs check quick test soak screenshots
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1|/' | column -t -s '|'

# A checksum of what pip installs: nbdev_export writes pyproject.toml anew each time, and pip is needed only if this differs.
REQUIREMENTS = $(PYTHON) -c "import hashlib, tomllib; text = open('pyproject.toml', encoding='utf-8').read(); \
  table = tomllib.loads(text); needs = table['build-system'], table['project'], open('constraints.txt').read(); \
  print(hashlib.sha256(repr(needs).encode()).hexdigest())"

# Markers of two installations: of everything that people use, and of the packages of tests and comparisons as well.
$(READY): EXTRAS = all
$(COMPLETE): EXTRAS = all,dev,peers
$(COMPLETE): $(READY)
$(READY) $(COMPLETE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ParaNMT Lab needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@if [ -L .venv ]; then echo "The linked .venv is left as it is: make setup in $$(realpath .venv/..) installs what is missing"; \
	elif [ "$$($(REQUIREMENTS))" = "$$(cat $@ 2>/dev/null)" ]; then touch $@; \
	else set -x; test -x $(BIN)/python || $(PYTHON) -m venv .venv; \
	  $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]' && { set +x; } 2>/dev/null && $(REQUIREMENTS) > $@; fi

setup: $(COMPLETE) ## Create .venv and install everything

demo: $(READY) ## The main job on the built-in data, then the app (APP=0: without)
	$(BIN)/paranmt demo
	@if [ "$(APP)" != 0 ]; then $(BIN)/paranmt app; fi

app: $(READY) ## The app on http://localhost:8501
	$(BIN)/paranmt app

# JupyterLab hides the stored pictures of notebooks that it does not trust, so those of the repository are signed first (a second or two).
OURS = $(wildcard $(or $(shell git ls-files 'nbs/*.ipynb' 2>/dev/null),nbs/*.ipynb nbs/*/*.ipynb))
lab: $(READY) ## JupyterLab on the first tutorial; START shows the packages
	-@$(BIN)/jupyter trust $(OURS) >/dev/null
	$(BIN)/jupyter lab nbs --LabApp.default_url=/lab/tree/tutorials/1_explore.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

# The site needs no package of the library: it shows stored outputs, and reads signatures from the text of the modules.
SITE := build/site-venv
$(SITE)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet -c constraints.txt $$($(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	@touch $@

docs: $(SITE)/.ready ## The documentation site in build/site, with every notebook as stored; a broken link is an error
	$(SITE)/bin/python docs/stage.py build/docs
	cd build && site-venv/bin/sphinx-build -q -W --keep-going -j auto -c ../docs -d doctrees docs site
	@echo "open build/site/index.html"

check: $(COMPLETE) ## The gate: notebooks clean, library exported, ruff, wording and spelling, types, every import runs downward
	@$(BIN)/python tests/gate.py check

quick: $(COMPLETE) ## The gate, then a minute of tests of what was changed
	@$(BIN)/python tests/gate.py quick

# A real browser for the tests of the app and of JupyterLab, a real server for those of the annotation database, the rule-based engine for those of translation, the parser for those of parsing. Without them those tests are skipped and say so.
debian:
	@lacking=; command -v chromium >/dev/null || lacking="chromium fonts-dejavu-core"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || lacking="$$lacking postgresql"; \
	apertium -l 2>/dev/null | grep -q spa-eng || lacking="$$lacking apertium-eng-spa"; \
	command -v link-parser >/dev/null || lacking="$$lacking link-grammar"; \
	if [ -n "$$lacking" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$lacking; \
	  else echo "absent: $$lacking: the tests that need them will be skipped; to run them: sudo apt-get install $$lacking"; fi; fi

# Every link and every name of the site, without stored outputs and without writing a page.
links: $(SITE)/.ready
	$(SITE)/bin/python docs/stage.py build/plain --plain
	cd build && site-venv/bin/sphinx-build -q -W --keep-going -j auto -b dummy -E -c ../docs -d plain-doctrees plain plain-out

# Ray for the test of a cluster; nothing else needs it. That test has the machine to itself, since Ray gives a node's helpers fifteen seconds to start.
ray: $(COMPLETE)
	@$(BIN)/python -c 'import ray' 2>/dev/null || $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[ray]' || echo "absent: Ray: the test of a cluster will be skipped"

test: $(COMPLETE) debian ray links ## nbdev_test, then pytest, and the links of the site
	$(BIN)/nbdev_test --n-workers 2
	$(BIN)/pytest tests -n 2 --dist loadfile --no-loadscope-reorder --ignore tests/jobs/test_cluster.py
	$(BIN)/pytest tests/jobs/test_cluster.py

soak: $(COMPLETE) debian ## The slow tests that make test leaves out; pictures of the pages in tests/screenshots/
	PICTURES=1 $(BIN)/pytest tests -m soak

screenshots: $(COMPLETE) debian ## The pictures of the app on the data of the demonstration, into nbs/tutorials/images/
	$(BIN)/paranmt demo
	$(BIN)/python tests/screenshots.py
