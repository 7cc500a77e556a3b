"""The folder of an experiment, in which finished tasks survive every crash.

Every file is written aside, flushed to the disk and renamed, so after a crash it is either complete
or absent. `settings.json` is written first and says whose folder this is. Each finished task is one
file under `tasks/`, with its checksum in the name, and the task and the code's identity inside. To
continue an experiment is to measure the tasks that have no file.
"""

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import tsucb
from tsucb.checks import MISFITS, finite, shown, within
from tsucb.files import ASIDE, locked, write_whole
from tsucb.logs.parquet import open_parquet
from tsucb.paper.experiments.experiment import Experiment, Task

DIGITS = 16  # of the checksum in a file's name, and of the code's identity
MOST_SETTINGS = 1 << 20  # bytes of settings.json
MOST_BYTES = 1 << 28  # of a task's file; twenty runs take a few thousand
ATTRIBUTES = b"PANDAS_ATTRS"  # the key in a Parquet file's metadata of pandas' `attrs`


class Folder:
    """The results of one experiment on disk.

    The constructor makes the folder, or checks that it holds this very experiment. It refuses, and
    leaves untouched, a folder with other settings or other files, one that another process uses,
    and, unless `other_code` is true, one that other code has measured in part. A finished folder
    can always be reported.
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
            new = self._is_only_begun(settings, other_code)
        elif not all(p.match(f".*{ASIDE}") for p in path.iterdir()):
            raise ValueError(
                f"{path} holds other files and no settings.json; give --out a new or empty folder"
            )
        self._lock = self._hold()
        try:
            for leftover in path.rglob(f".*{ASIDE}"):
                if leftover.is_file():
                    leftover.unlink()
            if new:  # before anything else, as a folder with files but without this one is refused
                text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
                self.write("settings.json", text)
            (path / "tasks").mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise

    def _is_only_begun(self, settings: dict[str, Any], other_code: bool) -> bool:
        """Return whether other code has begun this experiment here and finished no task.

        Raise ValueError if the folder is of another experiment, or if other code has finished some
        tasks, but not all.
        """
        found, there = self.path / "settings.json", None
        with suppress(ValueError, RecursionError):
            if found.is_file() and found.stat().st_size <= MOST_SETTINGS:
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
                named = name if name in settings else shown(name)
                differing.append(f"{named} is {old}, not {new}" if short else f"{named} differ")
        if differing:
            raise ValueError(
                f"{self.path} holds an experiment of other settings ({'; '.join(differing[:9])}); "
                "give --out another folder, or the same options to continue that one"
            )
        if there.get("code") == settings["code"]:
            return False
        every, left = len(self.experiment.tasks()), len(self.pending())
        if 0 < left < every and not other_code:
            raise ValueError(
                f"{self.path} was measured by other code of tsucb ({shown(there.get('code'))}, and "
                f"this is {settings['code']!r}), and {left:,} of its {every:,} tasks are left; "
                "give --out another folder, or --continue-other-code to mix both"
            )
        return left == every

    def _hold(self) -> int | None:
        """Lock the folder until `close`; return the handle."""
        if os.name == "nt":  # at worst two processes do the same work there
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
        """Return the files of finished tasks by key; raise ValueError if one is damaged."""
        keys = {task.key for task in self.experiment.tasks()}
        found: dict[str, Path] = {}
        for path in sorted((self.path / "tasks").glob("*.parquet")):
            key, _, checksum = path.stem.rpartition(".")
            if key not in keys:
                if path.stem in keys:
                    raise self._damage(path, "its name has no checksum")
                continue
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                raise self._damage(path, f"it is no file of up to {MOST_BYTES:,} bytes")
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
        try:
            self._check_rows(task, rows)
        except ValueError as error:
            raise ValueError(f"task {task.key} brought back other rows: {error}") from None
        rows.attrs = {
            "task": self._label(task),
            "code": code_identity(),
            "seconds": round(seconds, 3),
        }
        content = rows.to_parquet(index=False)
        self.write(f"tasks/{task.key}.{checksum_of(content)}.parquet", content)

    def _label(self, task: Task) -> list[Any]:
        """Return how a task's file names its task: experiment, seed and the task's fields."""
        return [self.experiment.name, self.experiment.seed, *json.loads(json.dumps(task))]

    def measured(self) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
        """Return the rows of all tasks, a table of their seconds, and the codes that measured them.

        Raise ValueError for a file that is not its task's.
        """
        parts, seconds = [], []
        codes: dict[str, None] = {}  # an ordered set
        axes, files = self.experiment.axes, self.finished()
        for task in self.experiment.tasks():
            path = files[task.key]
            try:
                part, about = self._read(task, path)
                if about["task"] != self._label(task):
                    raise ValueError("it is another task's")
                code, took = about["code"], finite("seconds", about["seconds"])
                if type(code) is not str or len(code) > DIGITS:
                    raise ValueError(f"its code is {shown(code)}")
            except (pa.ArrowException, OSError, *MISFITS) as error:
                raise self._damage(path, " ".join(str(error).split())[:300]) from None
            for place, (name, value) in enumerate(zip(axes, task.cell, strict=True)):
                part.insert(place, name, value)
            part.insert(len(axes), "policy", task.policy)
            seconds.append([*task.cell, *task[1:], took])
            parts.append(part)
            codes[code] = None
        names = [*axes, "policy", "first_run", "stop_run", "seconds"]
        times = pd.DataFrame(seconds, columns=names)
        return pd.concat(parts, ignore_index=True), times, list(codes)

    def _read(self, task: Task, path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Return the rows of a task's file, and the attributes that `store` gave them.

        Raise one of `MISFITS` if the rows are not the task's. The file's metadata must promise as
        many numbers as the task has before any are read.
        """
        lengths = self._lengths(task)
        file = open_parquet(path)
        if file.metadata.num_rows != len(task.runs) or file.metadata.num_row_groups != 1:
            raise ValueError("its runs are not the task's")
        group, sizes = file.metadata.row_group(0), dict[str, int]()
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema.partition(".")[0]
            sizes[name] = sizes.get(name, 0) + column.num_values
        if sizes != {name: len(task.runs) * max(1, n) for name, n in lengths.items()}:
            raise ValueError("its columns are not the task's")
        # pandas needs no metadata for these columns, and forged ones could make it fail.
        rows = file.read().replace_schema_metadata(None).to_pandas()
        self._check_rows(task, rows)
        return rows, json.loads(file.schema_arrow.metadata[ATTRIBUTES])

    def _check_rows(self, task: Task, rows: pd.DataFrame) -> None:
        """Raise ValueError unless the rows have the task's runs and columns of finite numbers."""
        lengths = self._lengths(task)
        if rows.columns.tolist() != list(lengths):
            raise ValueError("its columns are not the task's")
        if list(rows.run) != list(task.runs):
            raise ValueError("its runs are not the task's")
        for name, length in lengths.items():
            values = np.stack(rows[name].tolist())
            shape = (len(rows), length) if length else (len(rows),)
            if values.shape != shape or values.dtype.kind not in "iuf" or not within(values):
                raise ValueError(f"its {name} are not finite numbers of shape {shape}")

    def _lengths(self, task: Task) -> dict[str, int]:
        """Return the names of the columns of a task's rows, each with the length of its lists."""
        return {"run": 0, **self.experiment.numbers(task.cell)}


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
    return digest.hexdigest()[:DIGITS]


def checksum_of(content: bytes) -> str:
    """Return the first digits of the content's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]
