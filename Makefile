# make ant     two Ant episodes through ROS 2, sensors shuffled        (needs CPython 3.10 to 3.14)
# make view    the Ant in real time, in the browser: prints the address to open
# make test    the suite                      make test-slow  the rest, minutes
# make lint    ruff, mypy, and the rules of the structure
# make coverage  the suite with the lines and branches that it reaches: at least 90 %
# make docs    the documentation site: build/docs/index.html              (CPython 3.11 or newer)
# make bench   inference and ROS latency      make clean    removes .venv and what was built
# make campaign  breaks things around the policy node: what does it command, what does the robot do?
#                (more than an hour; one that was stopped makes only the tries that it lacks)
# make soak      a million ticks under random faults: does anything grow, does the robot walk
#                again?                                                      (some 20 minutes)
# make fuzz      the readers of untrusted files, FUZZ_S seconds each         (atheris)
# The training of the shipped models and the tables of the pages: `.venv/bin/python -m experiments`
# lists what there is, `.venv/bin/python -m experiments NAME` runs one  (after `make .venv/.test`).
#
# PYTHON=/path/to/python  chooses the interpreter: by default the newest of CPython 3.13 to 3.10 on the
# PATH, in pyenv or in uv, and 3.14 where there is no other, as PyBullet has to be built for it.
# VENV=DIR  chooses the virtual environment.
# ROS=system  takes rclpy from the sourced ROS 2 distribution; ROS=kilted and ROS=jazzy take that
# distribution's packages from PyPI, which ROS=wheels does with Kilted's. Left empty, it is the
# sourced distribution, and Kilted's packages where none is sourced.

PYTHON ?=
VENV ?= .venv
ROS ?=
FUZZ_S ?= 60

BIN = $(VENV)/bin
# Four at a time also on two cores, as many tests wait; what must keep real time runs alone.
PYTEST = $(BIN)/python -m pytest --dist worksteal --numprocesses 4
SOURCES = setup.py setup.cfg pyproject.toml constraints.txt constraints-jazzy.txt package.xml \
          $(wildcard scripts/* launch/* config/* models/* recipes/*)
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check
INSTALL = $(PIP) --constraint $${constraints:-constraints.txt} --editable
# uv needs a fifth of pip's processor time. It does not read pip's settings: where it finds no
# packages, pip installs them. It does not see the packages of a sourced ROS 2 distribution.
QUICK = { [ -n "$$ros_extra" ] && $(PIP) uv && $(BIN)/uv pip install --quiet \
          --python $(BIN)/python --constraint $${constraints:-constraints.txt} \
          --editable "$$package"; } 2>/dev/null || $(INSTALL) "$$package"
# It asks for a pybullet that CPython 3.12 and newer would have to build; they have another, which
# make_venv has built where there is no wheel of it.
NEWER = ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' \
        || $(PIP) --no-deps pybullet-envs-gymnasium==0.6.0 $${build:-}

.PHONY: ant view test test-slow coverage lint docs bench campaign soak fuzz clean

ant: $(VENV)/.ant
	@. $(VENV)/.ros && $(BIN)/an-control sim ant --episodes 2 --shuffle reset

view: $(VENV)/.view
	@. $(VENV)/.ros && $(BIN)/an-control sim ant --realtime --view --episodes 100000

test: $(VENV)/.test
	@. $(VENV)/.ros && $(PYTEST) -m "not slow" --ignore test/realtime && \
	  $(BIN)/python -m pytest test/realtime

test-slow: $(VENV)/.test
	@. $(VENV)/.ros && STANDSTILL_S=930 $(PYTEST) -m slow --timeout 900

# Its own target, as measuring slows what must keep real time: test/realtime is left out.
coverage: $(VENV)/.test
	@$(PIP) --constraint constraints.txt "pytest-cov>=6"
	@. $(VENV)/.ros && $(PYTEST) -m "not slow" --ignore test/realtime \
	    --cov --cov-report term:skip-covered --cov-report html:build/coverage

lint: $(VENV)/.test
	@$(BIN)/ruff check .
	@MYPYPATH=sim:. $(BIN)/mypy -p an_control -p an_control_sim -p experiments
# The package `launch` of ROS 2 is meant, not the folder: it has no __init__.py.
	@MYPYPATH=sim:. $(BIN)/mypy --no-namespace-packages --scripts-are-modules launch/*.py
	@$(BIN)/python -m pytest -qq -n 0 test/test_structure.py

# Cards and experiments are pages too: docs has links to their folders, which the copy follows.
# Needs CPython 3.11 or newer, as Sphinx does.
docs: $(VENV)/.docs
	@rm -rf build/docs-source && mkdir -p build && cp -rLp docs build/docs-source
	@. $(VENV)/.ros && $(BIN)/python -m sphinx --fail-on-warning --keep-going -q \
	    build/docs-source build/docs && echo build/docs/index.html

campaign: $(VENV)/.ant
# The result is there once every try has been made; then the next campaign starts at the first try.
	@rm -f $(VENV)/campaign.json
	@. $(VENV)/.ros && \
	  PYTHONPATH=test$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m campaign faults \
	    --state $(VENV)/campaign.state --json $(VENV)/campaign.json; \
	  status=$$?; [ ! -e $(VENV)/campaign.json ] || rm -f $(VENV)/campaign.state; exit $$status

soak: $(VENV)/.ant
	@. $(VENV)/.ros && PYTHONPATH=test$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m campaign soak

fuzz: $(VENV)/.test
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim,train,test,fuzz]"
	@mkdir -p $(VENV)/fuzz/wiring $(VENV)/fuzz/model
	@cp config/*.yaml $(VENV)/fuzz/wiring && cp models/*.safetensors $(VENV)/fuzz/model
	@for target in wiring model; do \
	    $(BIN)/python test/fuzz/readers.py $$target -max_total_time=$(FUZZ_S) \
	        -artifact_prefix=$(VENV)/fuzz/ $(VENV)/fuzz/$$target || exit 1; done

bench: $(VENV)/.ant
	@. $(VENV)/.ros && $(BIN)/an-control bench inference && $(BIN)/an-control bench ros

clean:
	rm -rf $(VENV) build install log *.egg-info

$(VENV)/.ant: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control and its simulator into $(VENV) ..."
	@. $(VENV)/.ros && package=".[$${ros_extra}sim]" && { $(QUICK); } && { $(NEWER); } && touch $@

$(VENV)/.view: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control, its simulator and its page into $(VENV) ..."
	@. $(VENV)/.ros && package=".[$${ros_extra}sim,view]" && { $(QUICK); } && { $(NEWER); } && \
	  touch $@ $(VENV)/.ant

$(VENV)/.test: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control and what its tests need into $(VENV) ..."
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim,train,test]" && { $(NEWER); } && \
	  touch $@ $(VENV)/.ant $(VENV)/.view

$(VENV)/.docs: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control and what its documentation needs into $(VENV) ..."
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim,train,docs]" && { $(NEWER); } && touch $@

$(VENV)/.ros:
	@PYTHON="$(PYTHON)" ROS="$(ROS)" scripts/make_venv $(VENV)
