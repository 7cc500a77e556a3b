"""Compare defaults, with nothing set: `python -m benchmarks.defaults --out DIR`.

Seven datasets as bandits, with raw and with standardised features and with rescaled rewards; this
library's agent beside other libraries at their tutorials' settings, on the same contexts and
rewards. Writes `defaults.csv` (every run), `defaults.md` (tables) and figures. Finished runs are
files under `cells/`, so that an interrupted benchmark continues; after a change to this library,
play it again with `--again ours`. `--report --docs` writes the tables and figures of the finished
runs into the documentation.

Seeds 0 to 9 are for reporting and nothing is chosen by them; develop with seeds from 1000 on.
"""

import argparse
import math
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from benchmarks.defaults import cells, problems, report
from benchmarks.defaults.cells import Cell
from benchmarks.defaults.contestants import CONTESTANTS, GRID, LIBRARY, MODEL, NAMED, Contestant
from benchmarks.defaults.play import CUT
from benchmarks.defaults.scores import CONSTANT, Selection
from benchmarks.defaults.workers import Worker, python_of
from benchmarks.tasks import NO_LIMIT

DOCS = Path(__file__).parents[2] / "docs"
DATASETS = ["mushroom", "statlog", "covertype", "adult", "census", "jester", "financial"]
KNOWN = [*DATASETS, *problems.RIVER]  # those of river only if they are asked for
STEPS, SEEDS = [3_000, 10_000], list(range(10))
QUICK_DATASETS, QUICK_STEPS, QUICK_SEEDS = ["statlog", "mushroom"], [500], [1000]
# The other libraries would take days for everything. Without --thorough they get this many seeds,
# and rescaled rewards on these datasets only.
LIBRARY_SEEDS, RESCALED = 5, ("mushroom", "statlog", "jester")
MODEL_SEEDS = 2  # of this library's slow models, on raw features
MILLISECONDS = 20.0  # a decision of another library may take, on average
GROUPS = {
    "all": CONTESTANTS,
    "ours": [c for c in CONTESTANTS if c.library == "tsucb"],
    "libraries": [c for c in CONTESTANTS if c.role == LIBRARY],
}

Read = Callable[[str], problems.Table]
Run = tuple[int, str, str, str, Contestant]  # seed, dataset, features, rewards


def one_of(names: str, known: Sequence[str], what: str) -> list[str]:
    """Return comma-separated names as a list; raise ValueError if one is not known."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in found if name not in known] or (not found and [names]):
        raise ValueError(f"unknown {what} {unknown[0]!r}; choose from {', '.join(known)}")
    return found


def contestants_of(names: str) -> list[Contestant]:
    """Return contestants by name or by group, in the order of the tables."""
    found = set(one_of(names, [*GROUPS, *NAMED], "contestant"))
    chosen = {c.name for group in found & set(GROUPS) for c in GROUPS[group]} | found
    return [c for c in CONTESTANTS if c.name in chosen]


def numbers(text: str, what: str, least: int) -> list[int]:
    """Return the numbers in a list of whole numbers and ranges, such as `0-4,7`."""
    out: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            span = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            span = range(0)
        if not span or span[0] < least:
            raise ValueError(f"{what} must be whole numbers of at least {least}, not {part!r}")
        out += span
    return sorted(set(out))


def plan(
    datasets: Sequence[str],
    variants: Sequence[tuple[str, str]],
    seeds: Sequence[int],
    contestants: Sequence[Contestant],
    thorough: bool = False,
) -> Iterator[Run]:
    """Yield every run, seed by seed, so that a stopped benchmark has played all problems."""
    for count, seed in enumerate(seeds):
        for dataset in datasets:
            for features, rewards in variants:
                for contestant in contestants:
                    prepared = (features, rewards) == (problems.STANDARDISED, "as is")
                    if contestant.role == GRID:
                        # A fixed prior is a reference, tuned on prepared data.
                        wanted = prepared
                    elif contestant.role == MODEL:
                        wanted = features == problems.RAW and count < MODEL_SEEDS
                    elif contestant.role == LIBRARY and not thorough:
                        few = rewards == "as is" or dataset in RESCALED
                        wanted = few and count < LIBRARY_SEEDS
                    else:
                        wanted = True
                    if wanted:
                        yield seed, dataset, features, rewards, contestant


class Benchmark:
    """Plays the runs that are not finished."""

    def __init__(
        self,
        out: Path,
        steps: list[int],
        milliseconds: float,
        read: Read,
        minutes: float = NO_LIMIT,
    ) -> None:
        self.out, self.steps, self.milliseconds = out, steps, milliseconds
        self.read = read
        self.end = time.monotonic() + 60 * minutes
        self.workers: dict[str, Worker | None] = {}
        self.stopped = False
        self.stream: tuple[Any, ...] = ()

    def worker(self, library: str) -> Worker | None:
        """Return the process of a library; None if it cannot be installed."""
        if library not in self.workers:
            python, reason = python_of(library)
            self.workers[library] = None if python is None else Worker(python, library)
            if python is None:
                print(f"{library}: {reason}", flush=True)
        return self.workers[library]

    def prepare(self, folder: Path, dataset: str, features: str, seed: int) -> Path:
        """Write the files of a stream, which stay until the next stream; return their path."""
        wanted, base = (dataset, features, seed), folder / "stream"
        if self.stream != wanted:
            drawn = problems.draw(self.read(dataset), features, seed, max(self.steps))
            np.save(f"{base}.contexts.npy", drawn.contexts)
            np.save(f"{base}.rewards.npy", drawn.rewards)
            totals = {n: drawn.rewards[:n].sum(axis=0).max() for n in self.steps}
            for scale in problems.SCALES if features == problems.STANDARDISED else ["as is"]:
                for n, total in totals.items():
                    cell = Cell(dataset, features, scale, n, CONSTANT, seed)
                    cells.save(self.out, cell, total=float(total), seconds=0, note="", version="")
            self.stream = wanted
        return base

    def play(
        self,
        folder: Path,
        seed: int,
        dataset: str,
        features: str,
        rewards: str,
        contestant: Contestant,
    ) -> None:
        """Play one run to the longest number of steps that is not finished, and save all totals."""
        ours = {n: Cell(dataset, features, rewards, n, contestant.name, seed) for n in self.steps}
        missing = [n for n, cell in ours.items() if cells.load(self.out, cell) is None]
        worker = self.worker(contestant.library) if missing else None
        if worker is None:
            return
        possible = [n for n in missing if not self.slow(ours[n])]
        result: dict[str, Any] = {"totals": {}, "seconds": 0, "note": f"{CUT} with another seed"}
        if possible:
            result = worker.ask(
                stream=str(self.prepare(folder, dataset, features, seed)),
                contestant=contestant.name,
                scale=problems.SCALES[rewards],
                steps=possible,
                seed=seed,
                milliseconds=self.milliseconds if contestant.role == LIBRARY else math.inf,
            )
        for n in [] if self.stopped else missing:
            total = result["totals"].get(str(n))
            cells.save(
                self.out,
                ours[n],
                total=total,
                seconds=result["seconds"],
                note="" if total is not None else result["note"] or f"{CUT} with another seed",
                version=worker.version,
            )

    def slow(self, cell: Cell) -> bool:
        """Return whether a run with another seed and no more steps was too slow."""
        found = [
            other
            for n in self.steps
            if n <= cell.steps
            for other in cells.seeds(self.out, cell._replace(steps=n))
        ]
        return any(other["note"].startswith(CUT) for other in found)

    def take(self, left: SimpleQueue[tuple[int, Run]], total: int, core: int | None) -> None:
        """Play runs until none is left, pinned to a core if one is given, and print progress."""
        if core is not None and hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[core % len(cores)]})  # of this thread and its workers
        begin = last = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="tsucb-defaults-") as folder:
            try:
                while not left.empty() and time.monotonic() < self.end:
                    try:
                        place, one = left.get_nowait()
                    except Empty:
                        break
                    self.play(Path(folder), *one)
                    now = time.perf_counter()
                    if (not core and now - last > 30) or place == total:
                        last = now
                        seed, dataset, features, rewards, contestant = one
                        where = f"seed {seed}, {dataset}, {features}, {rewards}, {contestant.name}"
                        minutes = (now - begin) / 60
                        print(
                            f"{place:,} of {total:,} runs, {minutes:.1f} min: {where}", flush=True
                        )
            finally:
                self.stop()

    def stop(self) -> None:
        """End all workers, without saving their current runs."""
        self.stopped = True
        for worker in list(self.workers.values()):
            if worker is not None:
                worker.stop()


def play_all(runs: Sequence[Run], make: Callable[[], Benchmark], processes: int) -> None:
    """Play all runs with several processes, each of which takes the next run that is left."""
    left: SimpleQueue[tuple[int, Run]] = SimpleQueue()
    for numbered in enumerate(runs, start=1):
        left.put(numbered)
    players = [make() for _ in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        try:
            # Threads suffice, as they wait for the processes of the libraries.
            found = [
                pool.submit(player.take, left, len(runs), core if processes > 1 else None)
                for core, player in enumerate(players)
            ]
            for playing in found:
                playing.result()
        except BaseException:
            while not left.empty():
                left.get()
            for player in players:
                player.stop()
            raise


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; print one sentence and exit with 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.defaults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("results/defaults"), metavar="DIR")
    add("--contestants", default="all", metavar="NAMES", help="names, or all, ours, libraries")
    add("--datasets", metavar="NAMES", help=f"comma-separated, of {', '.join(KNOWN)}")
    add("--features", metavar="NAMES", help="raw, standardised or both (default: both)")
    add("--rewards", metavar="NAMES", help=f"comma-separated, of {', '.join(problems.SCALES)}")
    add("--steps", metavar="NUMBERS", help="numbers of steps (default: 3000,10000)")
    add("--seeds", metavar="NUMBERS", help="numbers and ranges of them (default: 0-9)")
    add("--quick", action="store_true", help="2 datasets, 1 seed, 500 steps: about a minute")
    add(
        "--milliseconds",
        type=float,
        default=MILLISECONDS,
        help="cut another library's run off that takes longer a decision (default: %(default)g)",
    )
    add(
        "--processes",
        type=int,
        default=1,
        metavar="NUMBER",
        help="play this many runs at once, a core each; compile first, with --quick",
    )
    add("--again", metavar="NAMES", help="play these contestants again although they are finished")
    add(
        "--thorough",
        action="store_true",
        help=f"more than {LIBRARY_SEEDS} seeds of the other libraries too, and rescaled rewards on "
        f"more datasets than {', '.join(RESCALED)}: days",
    )
    add(
        "--minutes",
        type=float,
        default=NO_LIMIT,
        help="begin no run after this time; the same command goes on",
    )
    add(
        "--restore",
        type=Path,
        nargs="*",
        metavar="FILE",
        help="begin with the runs in these tables, of equal ones that of the first; without a "
        "name, in the documentation's",
    )
    add(
        "--report",
        action="store_true",
        help="play nothing; write the tables of what these have finished",
    )
    add("--docs", action="store_true", help="write them into the documentation too")
    options = parser.parse_args(arguments)
    try:
        check_options(options)
    except ValueError as error:
        exit_with(error)
    return options


def check_options(options: argparse.Namespace) -> None:
    """Replace the texts of options by their values; raise ValueError if one makes no sense."""
    quick = options.quick
    datasets = QUICK_DATASETS if quick else DATASETS
    steps, seeds = (QUICK_STEPS, QUICK_SEEDS) if quick else (STEPS, SEEDS)
    scales, kinds = list(problems.SCALES), [problems.RAW, problems.STANDARDISED]
    options.contestants = contestants_of(options.contestants)
    options.again = contestants_of(options.again) if options.again else []
    if options.datasets:
        datasets = one_of(options.datasets, KNOWN, "dataset")
    options.datasets = datasets
    scales = one_of(options.rewards, scales, "scale") if options.rewards else scales
    kinds = one_of(options.features, kinds, "features") if options.features else kinds
    options.variants = [v for v in problems.VARIANTS if v[0] in kinds and v[1] in scales]
    options.steps = numbers(options.steps, "steps", 1) if options.steps else steps
    options.seeds = numbers(options.seeds, "seeds", 0) if options.seeds else seeds
    if not options.milliseconds > 0:
        raise ValueError(f"milliseconds must be positive, not {options.milliseconds:g}")
    if options.processes < 1:
        raise ValueError(f"processes must be at least 1, not {options.processes}")
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"{options.out} is a file; give --out a folder")


def exit_with(error: Exception) -> None:
    """Print the mistake in one sentence, and exit."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)


def main(arguments: Sequence[str] | None = None, read: Read = problems.read) -> None:
    """Play the runs that are not finished, then write the tables and figures."""
    options = options_of(arguments)
    read = lru_cache(maxsize=None)(read)
    limits = options.milliseconds, read, options.minutes
    make = partial(Benchmark, options.out, options.steps, *limits)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.restore is not None:
            for table in options.restore or [DOCS / "results" / "defaults" / "defaults.csv"]:
                cells.restore(options.out, table)
        for dataset in [] if options.report else options.datasets:
            read(dataset)  # raises an error for missing files before anything is played
    except (OSError, ValueError) as error:
        exit_with(error)
    if not options.report:
        runs = list(
            plan(
                options.datasets,
                options.variants,
                options.seeds,
                options.contestants,
                options.thorough,
            )
        )
        for seed, dataset, features, rewards, contestant in runs:
            for n in options.steps if contestant in options.again else []:
                cell = Cell(dataset, features, rewards, n, contestant.name, seed)
                cell.path(options.out).unlink(missing_ok=True)
        try:
            play_all(runs, make, options.processes)
        except KeyboardInterrupt:
            print(
                "stopped; what is finished is kept, and the same command goes on", file=sys.stderr
            )
            sys.exit(130)
    chosen = Selection(options.datasets, options.steps, options.seeds)
    if options.report:
        names = [contestant.name for contestant in options.contestants]
        chosen = chosen._replace(contestants=names, variants=options.variants)
    print(report.write(options.out, chosen))
    if options.docs:
        report.write(options.out, chosen, into=DOCS / "results" / "defaults")
        runpy.run_path(str(DOCS / "tables.py"), run_name="__main__")


if __name__ == "__main__":
    main()
