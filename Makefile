# make ant     two Ant episodes through ROS 2, sensors shuffled        (needs CPython 3.10 to 3.14)
# make view    the Ant in real time, in the browser: prints the address to open
# make test    the suite                      make test-slow  the rest, minutes
# make lint    ruff and mypy
# make bench   inference and ROS latency      make clean    removes .venv and what was built
# make campaign  breaks things around the policy node: what does it command, what does the robot do?
#                (more than an hour; one that was stopped makes only the tries that it lacks)
# make soak      a million ticks under random faults: does anything grow, does the robot walk
#                again?                                                      (some 20 minutes)
# make fuzz      the readers of untrusted files, FUZZ_S seconds each         (atheris)
# make ant-policy  trains the shipped ants from nothing into runs/      (nine hours, one core; resumes)
# make camera-tables  those of docs/camera_learning.md                     (more than an hour)
# make reality  the ant, the cars and Pong under what robots are like: late, lost and noisy messages,
#                stops, worn motors; tables and JSON in runs/reality      (hours; EPISODES=1 to try)
# make ten-robots  ten environments that are not ours, learned and run over ROS 2; the table of
#                docs/ten_robots.md                     (some 10 hours of a core; resumes)
# make memory-tables  those of docs/memory.md                              (half an hour, one core)
# make parts-tables  that of docs/parts.md                            (five hours, one core; resumes)
# make pong-table  that of docs/parts.md on Pong               (two hours, one core; resumes)
# make ant-table  that of docs/parts.md on the Ant          (three hours, one core; resumes)
# make from-nothing  that of docs/from_nothing.md           (9 hours, one core; resumes)
# make tables  those of docs/rewiring.md, docs/scrambler.md and docs/ant_policy.md, with their pictures
#                                                                          (two hours, one core)
# A table that was stopped plays only the rows that it lacks.
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
EPISODES ?= 100
CAMERA_EPISODES ?= 20

BIN = $(VENV)/bin
# Four at a time also on two cores, as many tests wait; what must keep real time runs alone.
PYTEST = $(BIN)/python -m pytest --dist worksteal --numprocesses 4
SOURCES = setup.py setup.cfg pyproject.toml constraints.txt constraints-jazzy.txt package.xml \
          $(wildcard scripts/* launch/* config/* models/* recipes/*)
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check
INSTALL = $(PIP) --constraint $${constraints:-constraints.txt} --editable
# It asks for a pybullet that CPython 3.12 and newer would have to build; they have another, which
# make_venv has built where there is no wheel of it.
NEWER = ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' \
        || $(PIP) --no-deps pybullet-envs-gymnasium==0.6.0 $${build:-}

# The rows of the tables in docs/; the first protocol is what the others differ from.
comma = ,
REWIRED = none 1,announced reset 500 200 100 50 25 1 100,reset 50,reset none,zeroed
DISTURBED = reset reset,noise=5,noise-sd=1 reset,noise=10,noise-sd=1 reset,copies=7 reset,copies=28 \
            $(foreach share,0.05 0.1 0.2 0.3 0.5,reset$(comma)missing=$(share))
SHARES = 0.1 0.2 0.25 0.3 0.4 0.5
MISSING = none $(SHARES:%=none,missing=%) $(SHARES:%=none,missing=%,monitor=off)
MOVED_MISSING = none reset,missing=0.1 reset,missing=0.25 100,missing=0.1 25,missing=0.1 \
                100,missing=0.25 reset+100,missing=0.1 reset+25,missing=0.1 reset+100,missing=0.25
MOVED = none 100 25 25,until=500 reset+100
NOISY = none 10 5 25,swap=2 100,swap=2 25,swap=4 none,jitter=0.02 25,jitter=0.02 \
          100,jitter=0.02 none,jitter=0.05 25,jitter=0.05
MOVED_CARTPOLE = none,monitor=off none 100 25 reset reset+100 reset+25 25,monitor=off
PICTURED = none 100 100,announced
BACKGROUNDS = reset $(foreach scene,marble waves city mountain,reset$(comma)background=$(scene))
MISSING_PATCHES = reset $(foreach share,0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9,reset$(comma)missing=$(share))
RESHUFFLED = reset 500 200 100 50 25
# What robots are like; the first protocol is the clean one.
REALITY = reset none reset+100 reset+25 delay=1 delay=2 delay=0..2 jitter=0.02 jitter=0.05 lose=0.1 \
          repeat=0.1 stop=2 start=rest start=posture gain=0.8 gain=0.6 friction=0.5 mass=0.7 \
          mass=1.3 lag=0.5 reset+100,missing=0.1 reset+25,missing=0.1 reset,missing=0.25 \
          reset+100,missing=0.25 25,swap=2 25,jitter=0.05
STARTS = reset stop=2 start=rest start=posture reset,stop=2 reset,start=rest reset,start=posture
REALITY_CAMERA = reset reset,delay=1 reset,lose=0.1 reset,repeat=0.1
EVALUATE = $(BIN)/an-control evaluate
# A table of a page: model, page, title, episodes and seed, protocols.
TABLE = $(EVALUATE) models/$(1).safetensors --markdown docs/$(2).md --title "$(3)" $(4) \
        --state "$(VENV)/$(3).rows" --table $(5)

# One of `make reality`: model, episodes, protocols.
SHOWN = $(EVALUATE) models/$(1).safetensors --episodes $(2) --seed 1 --table $(3) --title $(1) \
        --markdown runs/reality/$(1).md --json runs/reality/$(1).json \
        --state runs/reality/$(1).rows

# A step on the faster teacher: recipe, the step before it, seed.
FASTER = $(BIN)/an-control distill ant --recipe ant-fast-$(1) \
         --teacher runs/ant_td3/model.safetensors --start-model $(2)/model.safetensors \
         --out runs/ant_fast_$(3) --seed $(3)

# The teacher of a worn Ant: each episode has one of these with a chance of 0.7.
WORN = gain=0.6..1 friction=0.5..1 mass=0.7..1.3 lag=0..0.5

# A step on the teacher that gets up: recipe, the model before it, number, seed.
UP = $(BIN)/an-control distill ant --recipe ant-fast-$(1) --teacher runs/ant_up.safetensors \
     --start-model $(2) --out runs/ant_fast_$(3) --seed $(4)

# A step on the teacher that walks on worn robots and gets up: recipe, the model before it, seed.
ON_WORN = $(BIN)/an-control distill ant --recipe ant-worn-$(1) \
          --teacher runs/ant_worn_up.safetensors --start-model $(2) --out runs/ant_worn_$(3) \
          --seed $(3)

.PHONY: ant view test test-slow lint bench campaign soak fuzz reality ten-robots tables ant-policy \
        camera-tables memory-tables parts-tables pong-table ant-table from-nothing clean

ant: $(VENV)/.ant
	@. $(VENV)/.ros && $(BIN)/an-control sim ant --episodes 2 --shuffle reset

view: $(VENV)/.view
	@. $(VENV)/.ros && $(BIN)/an-control sim ant --realtime --view --episodes 100000

test: $(VENV)/.test
	@. $(VENV)/.ros && $(PYTEST) -m "not slow" --ignore test/realtime && \
	  $(BIN)/python -m pytest test/realtime

test-slow: $(VENV)/.test
	@. $(VENV)/.ros && STANDSTILL_S=930 $(PYTEST) -m slow --timeout 900

lint: $(VENV)/.test
	@$(BIN)/ruff check .
# mypy reads no package_dir: the link gives sim/ the name that it is imported by.
	@mkdir -p $(VENV)/typed && ln -sfn $(CURDIR)/sim $(VENV)/typed/an_control_sim
	@MYPYPATH=$(VENV)/typed:. $(BIN)/mypy -p an_control -p an_control_sim

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

reality: $(VENV)/.test
	@mkdir -p runs/reality
	$(call SHOWN,ant,$(EPISODES),$(REALITY))
	@. $(VENV)/.ros && $(BIN)/an-control sim ant --realtime --shuffle reset --seed 1 \
	  --episodes $(EPISODES) --json runs/reality/ant_realtime.json
	$(call SHOWN,car_racing,$(CAMERA_EPISODES),$(REALITY_CAMERA))
	$(call SHOWN,pong,$(CAMERA_EPISODES),$(REALITY_CAMERA))
	$(BIN)/an-control bench inference --json runs/reality/inference.json

ten-robots: $(VENV)/.test
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "gymnasium[mujoco]"
	@. $(VENV)/.ros && $(BIN)/python scripts/ten_robots.py runs/ten_robots

tables: $(VENV)/.test
	$(call TABLE,ant,rewiring,ant moved,--episodes 100 --seed 1,$(MOVED))
	$(call TABLE,ant,rewiring,ant moved and noisy,--episodes 20 --seed 1,$(NOISY))
	$(call TABLE,ant,rewiring,ant missing,--episodes 40 --seed 1,$(MISSING)) \
	  --plots docs/rewiring/ant_missing
	$(call TABLE,ant,rewiring,ant moved and missing,--episodes 40 --seed 1,$(MOVED_MISSING))
	$(call TABLE,ant,scrambler,ant in reality,--episodes 100 --seed 1,$(REALITY))
	$(call TABLE,ant,scrambler,ant stops and starts,--episodes 100 --seed 1 --success 2847,$(STARTS))
	$(call TABLE,cartpole,rewiring,cartpole moved,--episodes 100 --seed 1,$(MOVED_CARTPOLE))
	$(call TABLE,ant_quick,rewiring,ant rewired,--monitor off --episodes 100 --seed 1,$(REWIRED))
	$(call TABLE,ant_quick,rewiring,ant disturbed,--monitor off --episodes 100 --seed 1,$(DISTURBED))
	$(EVALUATE) models/ant_quick.safetensors --monitor off --episodes 100 --table $(PICTURED) \
	  --plots docs/rewiring/ant
	$(EVALUATE) models/ant.safetensors --episodes 1 --table none 100 --plots docs/rewiring/ant_monitored
	$(EVALUATE) models/ant.safetensors --identification --episodes 10 --seed 1 \
	  --markdown docs/ant_policy.md --plots docs/ant_policy

# The models' seeds are those of the shipped files; their cards say what came of each step.
ant-policy: $(VENV)/.test
	$(BIN)/an-control distill ant --out runs/ant --seed 2
	$(BIN)/an-control train-teacher ant --out runs/ant_teacher --steps 1500000
	$(BIN)/an-control distill ant --recipe ant-second --teacher runs/ant_teacher/model.safetensors \
	  --start-model runs/ant/model.safetensors --out runs/ant_again --seed 3
	$(BIN)/an-control distill ant --recipe ant-memory \
	  --teacher runs/ant_teacher/model.safetensors \
	  --start-model runs/ant_again/model.safetensors --out runs/ant_memory --seed 3
	$(BIN)/an-control distill ant --recipe ant-rewired \
	  --teacher runs/ant_teacher/model.safetensors \
	  --start-model runs/ant_memory/model.safetensors --out runs/ant_rewired --seed 7
	$(BIN)/an-control distill ant --recipe ant-missing \
	  --teacher runs/ant_teacher/model.safetensors \
	  --start-model runs/ant_rewired/model.safetensors --out runs/ant_ppo --seed 11
	$(BIN)/an-control train-teacher ant --algorithm td3 --steps 1000000 --minutes 300 \
	  --out runs/ant_td3
	$(call FASTER,first,runs/ant_ppo,1)
	$(call FASTER,second,runs/ant_fast_1,2)
	$(call FASTER,third,runs/ant_fast_2,3)
	$(call FASTER,fourth,runs/ant_fast_3,4)
	$(call FASTER,fifth,runs/ant_fast_4,5)
	$(call FASTER,sixth,runs/ant_fast_5,6)
	$(BIN)/python scripts/ant_gets_up.py runs/ant_td3/model.safetensors runs/ant_up.safetensors
	$(call UP,eighth,runs/ant_fast_6/model.safetensors,8,10)
	$(BIN)/python scripts/mean_of_models.py runs/ant_fast_6/model.safetensors \
	  runs/ant_fast_8/model.safetensors --out runs/ant_mean.safetensors
	$(call UP,ninth,runs/ant_mean.safetensors,9,11)
	$(BIN)/python scripts/mean_of_models.py runs/ant_fast_8/model.safetensors \
	  runs/ant_fast_9/model.safetensors --out runs/ant_fast.safetensors
	$(BIN)/an-control train-teacher ant --algorithm td3 --steps 1000000 --minutes 400 --seed 3 \
	  --faults $(WORN) --fault-share 0.7 --out runs/ant_worn
	$(BIN)/an-control distill ant --recipe ant-worn-first --teacher runs/ant_worn/model.safetensors \
	  --start-model runs/ant_fast.safetensors --out runs/ant_worn_1 --seed 14
	$(BIN)/python scripts/ant_gets_up.py runs/ant_worn/model.safetensors \
	  runs/ant_worn_up.safetensors
	$(call ON_WORN,second,runs/ant_worn_1/model.safetensors,15)
	$(call ON_WORN,second,runs/ant_worn_1/model.safetensors,16)
	$(BIN)/python scripts/mean_of_models.py runs/ant_worn_15/model.safetensors \
	  runs/ant_worn_16/model.safetensors --out runs/ant_worn_mean.safetensors
	$(call ON_WORN,third,runs/ant_worn_mean.safetensors,17)
	$(call ON_WORN,third,runs/ant_worn_17/model.safetensors,18)
	$(BIN)/python scripts/mean_of_models.py runs/ant_worn_17/model.safetensors \
	  runs/ant_worn_18/model.safetensors --out runs/ant.safetensors
	$(BIN)/an-control train-monitor runs/ant.safetensors --folder runs/ant_monitor \
	  --faults delay=1 start=rest start=posture stop=0.5..2 $(WORN) --fault-share 0.5

camera-tables: $(VENV)/.test
	$(call TABLE,car_racing,camera_learning,car_racing backgrounds,--episodes 100 --seed 1,$(BACKGROUNDS))
	$(call TABLE,car_racing,camera_learning,car_racing reshuffled,--episodes 4 --seed 1,$(RESHUFFLED))
	$(call TABLE,pong,camera_learning,pong missing,--episodes 20 --seed 2,$(MISSING_PATCHES))
	$(call TABLE,car_racing,camera_learning,car_racing in reality,--episodes 20 --seed 1,$(REALITY_CAMERA))
	$(call TABLE,pong,camera_learning,pong in reality,--episodes 20 --seed 2,$(REALITY_CAMERA))
	$(call TABLE,pong,camera_learning,pong reshuffled,--episodes 3 --seed 2,$(RESHUFFLED))
	$(EVALUATE) models/pong.safetensors --episodes 1 --seed 2 --table reset --plots docs/camera

from-nothing: $(VENV)/.test
	@$(BIN)/python scripts/from_nothing.py runs/from_nothing

parts-tables: $(VENV)/.test
	@$(BIN)/python scripts/compare_parts.py runs/parts

pong-table: $(VENV)/.test
	@$(BIN)/python scripts/compare_students.py pong runs/pong_students

ant-table: $(VENV)/.test
	@$(BIN)/python scripts/compare_students.py ant runs/ant_students --seeds 1 2 3

memory-tables: $(VENV)/.test
	@mkdir -p docs/memory
	$(BIN)/an-control bench memory --out runs/memory --markdown docs/memory.md \
	  --picture docs/memory/curves.png

clean:
	rm -rf $(VENV) build install log *.egg-info

$(VENV)/.ant: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control and its simulator into $(VENV) ..."
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim]" && { $(NEWER); } && touch $@

$(VENV)/.view: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control, its simulator and its page into $(VENV) ..."
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim,view]" && { $(NEWER); } && \
	  touch $@ $(VENV)/.ant

$(VENV)/.test: $(SOURCES) | $(VENV)/.ros
	@echo "Installing an_control and what its tests need into $(VENV) ..."
	@. $(VENV)/.ros && $(INSTALL) ".[$${ros_extra}sim,train,test]" && { $(NEWER); } && \
	  touch $@ $(VENV)/.ant $(VENV)/.view

$(VENV)/.ros:
	@PYTHON="$(PYTHON)" ROS="$(ROS)" scripts/make_venv $(VENV)
