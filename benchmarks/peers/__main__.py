"""Measure `tsucb` beside other bandit libraries: `python -m benchmarks.peers --out DIR`.

Each library is installed from the package index into its own environment and measured in its own
process, on one core. A library that cannot be installed or takes too long is reported.
Writes `peers.csv` (all numbers), `peers.md` (tables, machine, versions) and the figure.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.output import processor
from benchmarks.peers import libraries, report

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = Path(sys.prefix) / "peers"

# The packages to install for each library. The requirements of Open Bandit Pipeline exclude current
# Python, but its linear policies need only these two packages, and run.
PACKAGES: dict[str, list[list[str]]] = {
    "mabwiser": [["mabwiser"]],
    "contextualbandits": [["contextualbandits"]],
    "river": [["river"]],
    "vowpalwabbit": [["vowpalwabbit", "numpy"]],
    "bayesianbandits": [["bayesianbandits"]],
    "obp": [["--no-deps", "obp"], ["numpy", "scikit-learn"]],
    "coba": [["coba", "numpy", "vowpalwabbit"]],
    "space_bandits": [["space-bandits"]],
}

INSTALL_SECONDS = 300
MINUTES = 14.0  # of the whole run, installing included
ONE_CORE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def install(library: str) -> tuple[Path | None, str]:
    """Return the interpreter of a library's environment, made on first use; or None and why."""
    if library == "tsucb":
        return Path(sys.executable), ""
    folder = ENVIRONMENTS / library
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = json.dumps(PACKAGES[library])
    if stamp.exists() and stamp.read_text() == wanted:
        return python, ""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for packages in PACKAGES[library]:
        try:
            done = subprocess.run(
                [*pip, *packages], capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            return None, f"not installed within {INSTALL_SECONDS} s"
        if done.returncode:
            said = [x.strip() for x in done.stderr.splitlines() if "error" in x.lower()]
            return None, f"pip cannot install it: {(said or ['no reason given'])[-1]}"
    stamp.write_text(wanted)
    return python, ""


def version(library: str, python: Path) -> str:
    """Return the version of the library installed in that environment."""
    code = f"from importlib.metadata import version; print(version({library!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def measure(library: str, python: Path, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Run a library's measurements; return its rows, and what went wrong."""
    command = [str(python), "-m", "benchmarks.peers.measure", library]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | ONE_CORE,
        preexec_fn=pin_to_one_core,
    ) as process:
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        rows = [json.loads(line) for line in process.stdout]
        cut = not timer.is_alive()
        timer.cancel()
        complaint = process.stderr.read().strip().splitlines()
    if cut:
        return rows, f"cut off after {seconds:.0f} s; what it had measured by then is kept"
    if process.returncode:
        return rows, f"stopped: {(complaint or ['no reason given'])[-1]}"
    return rows, ""


def pin_to_one_core() -> None:
    """Keep a process and its threads on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def machine() -> str:
    """Return the processor, the system and the interpreter, in one line."""
    return f"{processor()}, one core, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    """Install, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/peers"), metavar="DIR")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="for everything (default: %(default)g)"
    )
    parser.add_argument("--only", help="comma-separated names of libraries", metavar="NAMES")
    options = parser.parse_args()
    known = ["tsucb", *(name for name in PACKAGES if hasattr(libraries, name))]
    names = options.only.split(",") if options.only else known
    if unknown := set(names) - set(known):
        parser.error(
            f"unknown library {', '.join(sorted(unknown))}: choose from {', '.join(known)}"
        )

    begin = time.perf_counter()
    print(f"installing {len(names)} libraries below {ENVIRONMENTS} ...", flush=True)
    with ThreadPoolExecutor(2) as pool:
        pythons = dict(zip(names, pool.map(install, names), strict=True))
    rows: list[dict[str, Any]] = []
    remarks: dict[str, str] = {}
    versions: dict[str, str] = {}
    # This library comes last: it has most to measure and to compile, and gets the time left.
    for left, name in zip(
        range(len(names), 0, -1), sorted(names, key=lambda name: name == "tsucb"), strict=True
    ):
        python, reason = pythons[name]
        if python is None:
            remarks[name] = reason
        else:
            spare = 60 * options.minutes - (time.perf_counter() - begin)
            versions[name] = version(name, python)
            found, remarks[name] = measure(name, python, max(1.0, spare / left))
            rows += [{"library": name, "version": versions[name], **row} for row in found]
        state = f"{sum(row['library'] == name for row in rows)} results"
        print(f"{name:18} {state}  {remarks[name]}", flush=True)
    rows.sort(key=lambda row: names.index(row["library"]))
    minutes = (time.perf_counter() - begin) / 60
    print(f"measured in {minutes:.1f} minutes")
    versions = {name: versions[name] for name in names if name in versions}
    about = report.About(machine(), versions, {k: v for k, v in remarks.items() if v}, minutes)
    report.write(rows, about, options.out)
    print((options.out / "peers.md").read_text())


if __name__ == "__main__":
    main()
