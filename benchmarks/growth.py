"""How the time of one task of Table 2 grows with runs and with steps.

    python -m benchmarks.growth --out docs/results/table2-growth.csv    # on a GPU
    python -m benchmarks.growth --sizes 2:500,4:500,8:500,4:250,4:1000  # on a processor

TS on statlog, one task at a time in a process of its own, as `tsucb reproduce table2` measures it
with `--workers 1`; the time to compile for a size counts.
"""

import argparse
import time
from pathlib import Path

from tsucb.files import write_whole
from tsucb.paper.experiments.processes import processes
from tsucb.paper.table2 import Table2

SIZES = "50:10000,100:10000,200:10000,400:10000,200:2500,200:5000"
DATASET, POLICY = "statlog", "TS"


def seconds(runs: int, horizon: int, data_dir: str | None) -> tuple[float, float]:
    """Return the seconds of one task, by the clock and of processor time."""
    experiment = Table2.at(
        "full", datasets=(DATASET,), policies=(POLICY,), runs=runs, horizon=horizon,
        data_dir=data_dir,
    ).beside(1)  # fmt: skip
    experiment.environment((DATASET,))
    begun, spent = time.perf_counter(), time.process_time()
    experiment.run((DATASET,), POLICY, range(runs))
    return time.perf_counter() - begun, time.process_time() - spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=SIZES, help="runs:steps, comma-separated")
    parser.add_argument("--data-dir", help="where the datasets lie")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    given = parser.parse_args()
    lines = ["dataset,policy,runs,horizon,seconds"]
    for size in given.sizes.split(","):
        runs, horizon = map(int, size.split(":"))
        with processes(1) as pool:
            clock, spent = pool.submit(seconds, runs, horizon, given.data_dir).result()
        print(
            f"{runs:5} runs {horizon:7,} steps {clock:7.1f} s, processor {spent:7.1f} s", flush=True
        )
        lines.append(f"{DATASET},{POLICY},{runs},{horizon},{clock:.3f}")
    if given.out:
        write_whole(given.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
