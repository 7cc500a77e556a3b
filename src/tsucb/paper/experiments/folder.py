"""The folder of an experiment, in which finished tasks survive every crash.

Every file is written aside, flushed to the disk and renamed, so that after a crash each is either
complete or absent. `settings.json` comes first and says what the folder is. Each finished task is
one file under `tasks/` with its checksum in the name, and the task and the code inside. Continuing
an experiment means measuring the tasks without a file.
"""

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

import tsucb
from tsucb.files import ASIDE, locked, write_whole
from tsucb.paper.experiments.experiment import Experiment, Task

DIGITS = 16  # of a checksum in a file's name
MOST_SETTINGS = 1 << 20  # bytes of settings.json


class Measured(NamedTuple):
    """The rows of all tasks, the seconds each task took, and the codes that measured them."""

    rows: pd.DataFrame
    times: pd.DataFrame
    codes: tuple[str, ...]


class Folder:
    """The results of one experiment on disk.

    Opening makes the folder, or checks that it holds this very experiment. A folder with other
    settings or other files, or in use by another process, is refused and left untouched. So is a
    folder that other code has measured in part, unless `other_code` is true; a finished folder can
    always be reported.
    """

    def __init__(self, path: Path, experiment: Experiment, *, other_code: bool = False) -> None:
        self.path = path
        self.experiment = experiment
        code = {"tsucb": tsucb.__version__, "code": code_identity()}
        settings = json.loads(json.dumps(code | experiment.settings(), allow_nan=False))
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; give --out a folder")
        path.mkdir(parents=True, exist_ok=True)
        new = True
        if (path / "settings.json").exists():
            new = self._is_unmeasured(settings, other_code)
        elif any(p.suffix != ASIDE for p in path.iterdir()):
            raise ValueError(
                f"{path} holds other files and no settings.json; give --out a new or empty folder"
            )
        self._lock = self._hold()
        try:
            for leftover in path.rglob(f"*{ASIDE}"):
                leftover.unlink()
            if new:  # before anything else: a folder without it is foreign
                text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
                self.write("settings.json", text)
            (path / "tasks").mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise

    def _is_unmeasured(self, settings: dict[str, Any], other_code: bool) -> bool:
        """Return whether this folder is of this very experiment, but no task of it is finished.

        Raise ValueError if it is of another experiment, or if other code has measured a part.
        """
        found, there = self.path / "settings.json", None
        with suppress(ValueError, RecursionError):
            if found.stat().st_size <= MOST_SETTINGS:
                there = json.loads(found.read_text(encoding="utf-8"))
        if not isinstance(there, dict) or "experiment" not in there:
            raise ValueError(
                f"{found} is not the settings of an experiment; give --out a new or empty folder"
            )
        differing = []
        for name in sorted({*settings, *there} - {"tsucb", "code"}):
            old, new = (json.dumps(values.get(name)) for values in (there, settings))
            if old != new:
                short = max(len(old), len(new)) <= 40
                differing.append(f"{name} is {old}, not {new}" if short else f"{name} differ")
        if differing:
            raise ValueError(
                f"{self.path} holds an experiment of other settings ({'; '.join(differing)}); "
                "give --out another folder, or the same options to continue that one"
            )
        if there.get("code") == settings["code"]:
            return False
        every, left = len(self.experiment.tasks()), len(self.pending())
        if 0 < left < every and not other_code:
            raise ValueError(
                f"{self.path} was measured by other code of tsucb ({there.get('code')}, and this "
                f"is {settings['code']}), and {left:,} of its {every:,} tasks are left; give --out "
                "another folder, or --continue-other-code to mix both"
            )
        return left == every

    def _hold(self) -> int | None:
        """Lock the folder until it is closed; return the handle."""
        if os.name == "nt":  # two processes would repeat each other's work, no worse
            return None
        try:
            return locked(self.path)
        except BlockingIOError:
            raise ValueError(
                f"{self.path} is in use by another process; wait, or give --out another folder"
            ) from None

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file of the folder."""
        write_whole(self.path / name, content)

    def finished(self) -> dict[str, Path]:
        """Return the files of finished tasks by key; raise ValueError if a checksum differs."""
        keys = {task.key for task in self.experiment.tasks()}
        found: dict[str, Path] = {}
        for path in sorted((self.path / "tasks").glob("*.parquet")):
            key, _, checksum = path.stem.rpartition(".")
            if key not in keys:
                if path.stem in keys:
                    raise self._damage(path, "its name has no checksum")
                continue
            if checksum_of(path.read_bytes()) != checksum:
                raise self._damage(path, "its checksum differs")
            if key in found:
                raise self._damage(path, f"{found[key].name} is of the same task")
            found[key] = path
        return found

    def _damage(self, path: Path, reason: str) -> ValueError:
        """Return the error for a damaged file."""
        return ValueError(
            f"{path} is damaged ({reason}); delete it and start again: only it is repeated"
        )

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished."""
        done = self.finished()
        return [task for task in self.experiment.tasks() if task.key not in done]

    def store(self, task: Task, rows: pd.DataFrame, seconds: float) -> None:
        """Write the file of a finished task."""
        if list(rows.run) != list(task.runs):
            raise ValueError(f"task {task.key} brought back other runs than it was asked for")
        rows.attrs = {
            "task": self._label(task),
            "code": code_identity(),
            "seconds": round(seconds, 3),
        }
        content = rows.to_parquet(index=False)
        self.write(f"tasks/{task.key}.{checksum_of(content)}.parquet", content)

    def _label(self, task: Task) -> list[Any]:
        """Return what a task's file says of itself."""
        return [self.experiment.name, self.experiment.seed, *json.loads(json.dumps(task))]

    def measured(self) -> Measured:
        """Read all tasks in their order; raise ValueError for a file that is not the task's."""
        parts, seconds = [], []
        codes: dict[str, None] = {}  # an ordered set
        axes, files = self.experiment.axes, self.finished()
        for task in self.experiment.tasks():
            path = files[task.key]
            try:
                part = pd.read_parquet(path)
                about, part.attrs = part.attrs, {}
                if about["task"] != self._label(task):
                    raise ValueError("it is another task's")
                if list(part.run) != list(task.runs):
                    raise ValueError("its runs are not the task's")
                if "regret" in part and not np.isfinite(part.regret.to_numpy(float)).all():
                    raise ValueError("a regret is not finite")
                for place, (name, value) in enumerate(zip(axes, task.cell, strict=True)):
                    part.insert(place, name, value)
                part.insert(len(axes), "policy", task.policy)
                seconds.append([*task.cell, *task[1:], float(about["seconds"])])
            except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
                raise self._damage(path, str(error)) from None
            parts.append(part)
            codes[str(about["code"])] = None
        names = [*axes, "policy", "first_run", "stop_run", "seconds"]
        times = pd.DataFrame(seconds, columns=names)
        return Measured(pd.concat(parts, ignore_index=True), times, tuple(codes))


@cache
def code_identity() -> str:
    """Return a hash of the package's sources, which changes with every edit.

    >>> len(code_identity())
    16
    """
    package = Path(tsucb.__file__).parent
    digest = hashlib.sha256(tsucb.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"\n{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def checksum_of(content: bytes) -> str:
    """Return the first digits of the content's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]
