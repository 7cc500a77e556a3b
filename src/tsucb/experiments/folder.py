"""The folder of an experiment: what is finished stays finished, whatever happens next.

Every file is written aside, flushed to the disk and renamed, so that after a crash each is either
complete or absent. `settings.json` comes first and says what the folder is; each finished task
then becomes one file under `tasks/`. To continue is to measure the tasks that have no file yet.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tsucb
from tsucb.experiments.experiment import Experiment, Task
from tsucb.files import ASIDE, write_whole

if TYPE_CHECKING:
    import pandas as pd


class Folder:
    """The results of one experiment on disk.

    Opening it makes the folder, or checks that it holds this very experiment; a folder of other
    settings, of something else, or in use by another process is refused and left untouched.
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path = path
        self.experiment = experiment
        settings = json.loads(
            json.dumps({"tsucb": tsucb.__version__} | experiment.settings(), allow_nan=False)
        )
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; give --out a folder")
        found = path / "settings.json"
        if found.exists():
            self._compare(found, settings)
        elif path.exists() and any(p.suffix != ASIDE for p in path.iterdir()):
            raise ValueError(
                f"{path} holds other files and no settings.json; give --out a new or empty folder"
            )
        path.mkdir(parents=True, exist_ok=True)
        self._lock = self._hold()
        try:
            for leftover in path.rglob(f"*{ASIDE}"):
                leftover.unlink()
            if not found.exists():  # before anything else: a folder without it is foreign
                text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
                self.write("settings.json", text)
            (path / "tasks").mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise

    def _compare(self, found: Path, settings: dict[str, Any]) -> None:
        try:
            there = json.loads(found.read_text())
        except ValueError:
            there = None
        if not isinstance(there, dict) or "experiment" not in there:
            raise ValueError(
                f"{found} is not the settings of an experiment; give --out a new or empty folder"
            )
        differing = []
        for name in {**settings, **there}:
            old, new = (json.dumps(values.get(name)) for values in (there, settings))
            if old != new:
                short = max(len(old), len(new)) <= 40
                differing.append(f"{name} is {old}, not {new}" if short else f"{name} differ")
        if differing:
            raise ValueError(
                f"{self.path} holds an experiment of other settings ({'; '.join(differing)}); "
                "give --out another folder, or the same options to continue that one"
            )

    def _hold(self) -> int | None:
        """Lock the folder for as long as this process lives."""
        try:
            import fcntl
        except ImportError:  # Windows: two processes would repeat each other's work, no worse
            return None
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise ValueError(
                f"{self.path} is in use by another process; wait, or give --out another folder"
            ) from None
        return handle

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file of the folder."""
        write_whole(self.path / name, content)

    def pending(self) -> list[Task]:
        """The tasks that are not finished."""
        done = {p.stem for p in (self.path / "tasks").glob("*.parquet")}
        return [task for task in self.experiment.tasks() if task.key not in done]

    def store(self, task: Task, rows: pd.DataFrame, seconds: float) -> None:
        """Keep a finished task: its rows, and the seconds it took beside them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(rows, preserve_index=False)
        table = table.replace_schema_metadata(
            (table.schema.metadata or {}) | {b"seconds": f"{seconds:.3f}".encode()}
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self.write(f"tasks/{task.key}.parquet", sink.getvalue().to_pybytes())

    def rows(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows of all tasks in the order of the tasks, and the seconds each task took."""
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts, seconds = [], []
        axes = self.experiment.axes
        for task in self.experiment.tasks():
            path = self.path / "tasks" / f"{task.key}.parquet"
            try:
                table = pq.read_table(path)
            except (pa.ArrowInvalid, OSError) as error:
                raise ValueError(
                    f"{path} is damaged ({error}); delete it and start again: only it is repeated"
                ) from None
            part = table.to_pandas()
            for position, (name, value) in enumerate([*zip(axes, task.cell, strict=True)]):
                part.insert(position, name, value)
            part.insert(len(axes), "policy", task.policy)
            parts.append(part)
            seconds.append([*task.cell, *task[1:], float(table.schema.metadata[b"seconds"])])
        names = [*axes, "policy", "first_run", "stop_run", "seconds"]
        return pd.concat(parts, ignore_index=True), pd.DataFrame(seconds, columns=names)
