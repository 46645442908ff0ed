# The index of commands. Each target sets up what it needs (the virtual environment included).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test test-all test-redis check docs bench soak chaos chaos-cluster hostile fuzz conformance dist lock clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(BIN)/.installed: pyproject.toml deploy/lock/dev.txt
	$(PYTHON) -m venv $(VENV)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pip install --quiet --require-hashes --requirement deploy/lock/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(BIN)/.installed  ## virtual environment with everything in it

demo: setup  ## crawl a synthetic web on loopback with three replicas
	$(BIN)/python -m tests.simweb demo

# Tests that assert how long something takes run afterwards, one at a time. A failure of one call does not skip the others.
# What fails is run once more: the machine may have been busy.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
TIMED := $(PYTEST) -q $$(grep -rlE "mark\.timed" tests --include="test_*.py")
SIDE_BY_SIDE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.side_by_side
test: check  ## lint, types and the tests of every change
	@$(SIDE_BY_SIDE) -m "not timed and not long"; tests=$$?; \
	{ $(TIMED) -m "timed and not long" || $(TIMED) -m "timed and not long" --last-failed; } && exit $$tests

test-all: test  ## the same, and the long tests: clusters, kills, real servers, other programs, and Redis 7.0
	@$(SIDE_BY_SIDE) -m "long and not timed"; tests=$$?; \
	$(MAKE) --no-print-directory test-redis; redis=$$?; \
	$(TIMED) -m "timed and long" || $(TIMED) -m "timed and long" --last-failed; timed=$$?; \
	exit $$((tests + redis + (timed != 0)))

# Servers format numbers of scripts differently. These tests take 100 s of CPU time.
ON_REDIS := tests/lua tests/frontier $(patsubst %,tests/cli/test_%.py,commands redis_troubles refresh repair steering)
NOT_ON_REDIS := --ignore=tests/frontier/test_servers.py
test-redis: setup  ## the tests of scripts and of commands that steer a crawl, on the oldest server that is supported
	@if command -v redis-server > /dev/null || [ -n "$$CI" ]; then \
	PEERCRAWL_TEST_SERVER=redis-server $(PYTEST) --numprocesses 4 --dist loadfile -q -m "not timed" $(ON_REDIS) $(NOT_ON_REDIS); \
	else echo "redis-server is not installed: its tests are skipped"; fi

check: setup  ## lint and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The variable silences an announcement of mkdocs-material that is no warning about these pages.
docs: setup  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup  ## most benchmarks, short forms
	$(BIN)/python -m bench

soak: setup  ## thousands of simulated clusters, a proof that each guard is needed, and 30 days of pages that are visited again
	$(BIN)/python -m tests.simulation --runs 5000
	$(BIN)/python -m tests.simulation --runs 300 --reshards 3
	$(BIN)/python -m tests.simulation --seed 7 --crowd 100
	$(BIN)/python -m tests.simulation.mutant_gate
	$(BIN)/python -m tests.simulation.recrawl

chaos: setup  ## five minutes of real processes under faults
	$(BIN)/python -m tests.chaos --seconds 300 --kills 60 --restarts 5 --reshards 6

chaos-cluster: setup  ## five minutes of faults on a real Redis Cluster, twice: fully durable, and with lost tails
	$(BIN)/python -m tests.chaos.cluster_run --mode durable
	$(BIN)/python -m tests.chaos.cluster_run --mode everysec

hostile: setup  ## 500 hostile domains beside 500 good ones, also with each of the settings that cost more
	$(BIN)/python -m tests.hostile --domains 500 --features all

fuzz: setup  ## ten million inputs to the pure parts, 200,000 hostile responses to a live replica, 10,000 odd ones beside other programs
	$(BIN)/python -m tests.fuzz --inputs 10000000
	$(BIN)/python -m tests.fuzz.inline
	$(BIN)/python -m tests.fuzz.live
	$(BIN)/python -m tests.fuzz.differential

conformance: setup  ## the scores on published test data
	$(BIN)/python -m tests.conformance

TAG ?=
dist: setup  ## wheel and sdist in dist/, checked and tried out in an empty environment (TAG=v0.1.0: the version has to match)
	$(BIN)/python -m tests.dist --tag "$(TAG)"

# Every package that the image (runtime, build) and CI (dev, pywb, peers) install, with the hashes of PyPI. Needs uv.
COMPILE := uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-package peercrawl \
	--custom-compile-command "make lock"
lock:  ## the newest versions that pyproject.toml allows, in deploy/lock
	$(COMPILE) pyproject.toml --extra identity --extra parquet --extra postgres --extra socks --extra upload --output-file deploy/lock/runtime.txt
	$(COMPILE) pyproject.toml --extra dev --output-file deploy/lock/dev.txt
	echo 'hatchling>=1.25' | $(COMPILE) - --output-file deploy/lock/build.txt
	printf 'pywb\nwacz\nsetuptools<81\n' | $(COMPILE) - --output-file deploy/lock/pywb.txt
	printf 'scrapy\nhttpx\nrequests\nroundup\ntrac\nhyperkitty\nwhoosh\ndjango-oscar\ndjango-scheduler\nsetuptools<81\n' | $(COMPILE) - --output-file deploy/lock/peers.txt

clean:  ## remove what the targets made
	rm -rf $(VENV) dist build site .pytest_cache .mypy_cache .ruff_cache demo-out
