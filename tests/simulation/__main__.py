"""Run the simulation: ``python -m tests.simulation --runs 5000``, or one seed again with ``--seed N -v``."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.simulation.crowd import BUSY, replay
from tests.simulation.loop import Breach
from tests.simulation.run import Run
from tests.simulation.scenario import Scenario
from tests.simulation.wire import Wire
from tests.valkey import ValkeyProcess

TOLD = 80
"""Lines of history that are printed without -vv."""

SELDOM = (200_000, 20, 100)
"""Thresholds of the garbage collection that save a fifth of the CPU."""

OVERRIDES = ("faulty", "replicas", "interval", "nodes", "restarts", "reshards", "fetches", "renders", "crowd")
"""Options with a number that replaces what the seed would draw."""

NOT_GIVEN = {"reshards": 0, "fetches": 0, "renders": 0}
"""What an option is unless it is given, if it is not None."""


def main() -> int:
    arguments = _arguments()
    logging.disable()  # what replicas have to warn of is what is done to them
    gc.set_threshold(*SELDOM)
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    seeds = [arguments.seed] if arguments.seed is not None else range(arguments.first, arguments.first + arguments.runs)
    with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as server:
        wire = Wire(server.socket)
        started = time.process_time()
        breaches, events, calls = 0, 0, 0
        for seed in seeds:
            drawn = (arguments.faulty, arguments.replicas, arguments.interval, arguments.chain)
            scenario = Scenario.draw(seed, *drawn, arguments.nodes, arguments.restarts)
            if arguments.crowd:
                scenario = Scenario.crowd(arguments.crowd, seed)
            given = arguments.reshards, arguments.fetches, arguments.renders
            scenario = replace(scenario, **dict(zip(NOT_GIVEN, given, strict=True)))
            run = Run(scenario, wire)
            try:
                result = run.go()
            except Breach as breach:
                breaches += 1
                _tell(breach, run, arguments)
                if breaches >= arguments.breaches:
                    break
            else:
                events, calls = events + result.events, calls + result.calls
                if arguments.seed is not None:
                    print(result)
                    print(*result.agreements, sep="\n")
                if arguments.crowd:
                    breaches += not _costs_little(run)
        used = time.process_time() - started
        print(f"{len(seeds)} runs, {breaches} breaches, {events} events, {calls} calls, {used:.1f} s of CPU here")
        wire.close()
    return 1 if breaches else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run")
    parser.add_argument("--runs", type=int, default=100, help="how many runs, each with a seed of its own")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--core", type=int, help="run on this core only, with the server: takes a sixth less CPU")
    parser.add_argument("--faulty", type=float, metavar="SECONDS", help="simulated seconds during which faults happen")
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--nodes", type=int, help="the nodes of the Redis Cluster")
    parser.add_argument("--restarts", type=int, help="how often the server is restarted, without its last writes")
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="the interval of the replicas")
    parser.add_argument("--chain", action="store_true", help="each page links to the next one only")
    parser.add_argument("--reshards", type=int, default=0, help="how often operators change the number of shards")
    parser.add_argument("--fetches", type=int, default=0, help="extra requests of the handler of each page")
    parser.add_argument("--renders", type=int, default=0, help="requests of each page in a browser")
    parser.add_argument("--crowd", type=int, metavar="REPLICAS", help="so many replicas, of which a tenth dies at once")
    parser.add_argument("--breaches", type=int, default=5, help="stop after so many")
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="print the history of a breach; -vv: all of it"
    )
    return parser.parse_args()


def _costs_little(run: Run) -> bool:
    """Print what the node of the control keys did for the crowd of `run`. False if it was busier than it may be."""
    costs = replay(run.load.phases)
    print(*costs, sep="\n")
    too_busy = [cost for cost in costs if cost.core > BUSY]
    print(*(f"MORE THAN {BUSY:.0%} OF A CORE: {cost}" for cost in too_busy), sep="\n", end="")
    return not too_busy


def _tell(breach: Breach, run: Run, arguments: argparse.Namespace) -> None:
    print(f"\nBREACH {breach}\n  {run.scenario}")
    given = [
        f" --{name} {vars(arguments)[name]:g}"
        for name in OVERRIDES
        if vars(arguments)[name] not in (None, NOT_GIVEN.get(name))
    ]
    chain = " --chain" if arguments.chain else ""
    print(f"  again: python -m tests.simulation --seed {run.scenario.seed}{''.join(given)}{chain} -v")
    if arguments.verbose:
        lines = run.history.told("" if arguments.verbose > 1 else breach.about)
        print("\n".join(lines if arguments.verbose > 1 else lines[-TOLD:]))


if __name__ == "__main__":
    sys.exit(main())
