# Everything sets itself up in .venv on its first run; a change of pyproject.toml sets it up again.
#
#   make demo [SF=1]   join TPC-H tables with sparkext and with Spark, verify that they agree, time both
#   make check         lint, types, kernels, planners and both APIs: what to run all day
#   make test          lint, the documentation, then every test function, page and example at least once
#   make versions      small suites on other Sparks and Pythons; fetches them, and needs the Pythons
#   make suites        every test in every combination, on every Spark that there is a jar for: hours; docs/versions.md
#   make lakes         tables of Delta Lake and Iceberg, on the Sparks that these have releases for: half an hour
#   make bench         all benchmarks but those to be named, under an hour; bench/results/run-….jsonl, which git ignores
#   make bench-quick   that they work, on tiny data, in two minutes; no times
#   make bench-report  docs/plots from the results that have a name, and what is won and lost [RESULTS="file …"]
#   make bench-compare OLD=file NEW=file   what has become slower or faster by more than noise
#   make bench-comet   fetch Apache DataFusion Comet and a Spark that it runs in, and compare: 700 MB, hours
#   make bench-lakes   tables of Delta Lake and Iceberg beside plain files, in a Spark that both have a release for
#   make study         how operators hand on their rows, under real memory limits: half an hour
#   make notebook      examples/tour.ipynb from examples/tour.py, with the results of a run
#   make lint          ruff, and mypy on the package as it installs
#   make docs          the documentation as a site in build/site; warnings are errors
#   make wheel         dist/*.whl, with a jar for every Spark, and dist/*.tar.gz
#   make release-check whether these could be published: twice the same bytes, and run in every Python from the wheel
#   make clean         remove what make made, except the generated TPC-H data in .data

SF ?= 1

candidates := python3 python3.14 python3.13 python3.12 python3.11 python3.10
is_recent  := -c 'import sys; sys.exit(sys.version_info < (3, 10))'
PYTHON     ?= $(shell for p in $(candidates); do $$p $(is_recent) 2>/dev/null && { echo $$p; break; }; done)

VENV   := .venv
BIN    := $(VENV)/bin
python  = $(or $(wildcard $(BIN)/python),$(PYTHON))

# Images often set it. Then each of hundreds of Python processes, workers of Spark among them, would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test versions suites lakes bench bench-quick bench-report bench-compare bench-comet bench-lakes study notebook lint docs kernels wheel release-check
.PHONY: classes clean java python
# One after the other, but for what `test` asks of a make of its own.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif
.DEFAULT_GOAL := help
.PHONY: help

help:
	@sed -n '1,/^$$/{s/^# \{0,1\}//p;}' Makefile

demo: java $(VENV)/.has-demo
	@$(BIN)/python -m sparkext demo --sf $(SF)

checked := tests/extension/test_both_apis.py tests/plans tests/test_imports.py
checked += $(filter-out tests/kernels/runtime/test_without_jit.py,$(wildcard tests/kernels/*/test_*.py))

check: java $(VENV)/.has-dev
	@$(MAKE) --no-print-directory lint kernels
	$(BIN)/pytest -q -n 2 --dist loadgroup --no-loadscope-reorder $(checked)

# Two processes at a time, each with sessions of its own, first that of the extension (tests/conftest.py). Tests go to
# whichever is free, in their order, one by one; those of the wheel all to one process, so they must not be the last.
# That transforms are planned where there is the extension is tested by `make versions`, on Spark 4.2.
test: java $(VENV)/.has-dev
	@$(MAKE) --no-print-directory --jobs 3 --output-sync lint docs kernels classes
	$(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder

# Or all processes would compile the same kernels.
kernels: $(VENV)/.has-dev
	@$(BIN)/python -m sparkext warm-up

# Or dozens of JVMs would parse the same classes.
classes: java $(VENV)/.has-dev
	@$(BIN)/python -m tests.support.class_archive

versions: java $(VENV)/.has-dev
	$(BIN)/nox --parallel 2

suites: java $(VENV)/.has-dev
	$(BIN)/nox -s suites
	$(BIN)/python -m docs.tools.generate

lakes: java $(VENV)/.has-dev
	$(BIN)/nox -s lakes

bench: java $(VENV)/.has-bench
	$(BIN)/python -m bench

bench-quick: java $(VENV)/.has-bench
	$(BIN)/python -m bench --quick

bench-report: $(VENV)/.has-bench
	$(BIN)/python -m bench report $(RESULTS)

bench-compare: $(VENV)/.has-bench
	$(BIN)/python -m bench compare $(OLD) $(NEW)

bench-comet: java $(VENV)/.has-bench
	$(BIN)/python -m bench.engines.comet --install
	.data/comet/venv/bin/python -m bench comet

bench-lakes: java $(VENV)/.has-dev
	$(BIN)/nox -s bench-lakes

study: $(VENV)/.has-bench
	rm -f bench/results/study.jsonl
	$(BIN)/python -m bench study --json bench/results/study.jsonl
	$(BIN)/python -m bench report

notebook: java $(VENV)/.has-dev
	$(BIN)/python examples/make_notebook.py

# mypy cannot see through an editable install whose folders lie side by side, so it reads an installed copy.
lint: $(VENV)/.has-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tests.scalafmt --check
	rm -rf build/lib build/typed
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target build/typed .
	cd build/typed && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache
	cd build/typed && MYPYPATH=. $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache $(CURDIR)/tests/usages.py
	cd build/typed && $(CURDIR)/$(BIN)/lint-imports $(CURDIR)/pyproject.toml --no-cache --no-logo
	$(BIN)/python -m docs.tools.word_rates

# Links and names that lead nowhere are errors. What pages take from the code, docs/tools/generate.py writes; a test asks.
docs: $(VENV)/.has-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict  # --quiet would hide warnings from --strict

# The same commit gives the same bytes.
wheel: java $(VENV)/.has-dev
	$(BIN)/nox -s wheel

release-check: java $(VENV)/.has-dev
	$(BIN)/nox -s release-check release-install

clean:
	rm -rf $(VENV) .nox build dist *.egg-info sparkext/jars .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package is installed editable: its finder maps whole folders, so new and changed files are seen at once.
# setuptools is installed first, so that nothing is fetched again when the package or its wheel is built. pip would compile
# every module of every package, half a minute: Python compiles what it imports.
$(VENV)/.has-%: pyproject.toml setup.py $(shell find sparkext/jvm -name '*.scala') | $(BIN)/python
	$(BIN)/python -m pip install --upgrade pip "setuptools>=77"
	$(BIN)/python -m pip install --no-compile --no-build-isolation --editable ".[$*]"
	$(BIN)/python -m sparkext jar --build
	@touch $@

$(BIN)/python: | python
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): a minute or so, about 1.2 GB"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make virtual environments. Debian, Ubuntu: apt install python3-venv" >&2; exit 1; }

python:
	@$(or $(python),false) $(is_recent) 2>/dev/null || { \
	  echo "sparkext needs Python 3.10 or later; found $$($(or $(PYTHON),python3) --version 2>&1)." \
	    "Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }

# Asked before anything is downloaded: the check runs from the checkout and needs no package.
java: python
	@$(python) -m sparkext doctor --only java
