"""Write the log of an agent's decisions and rewards, which `tsucb.logs` reads."""

import contextlib
import json
import os
import secrets
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.checks import shown, whole_number
from tsucb.contexts.values import values_of
from tsucb.extras import require
from tsucb.files import written_whole
from tsucb.logs.decision_log import FINISHED, JOURNAL, Row, journal_rows, write_parquet

if TYPE_CHECKING:
    from tsucb.agent.decision import Decision, Explanation

# What goes wrong with rows that cannot be written as text, and with disks.
UNWRITABLE = (OSError, ValueError, TypeError, RecursionError, MemoryError)


class DecisionLog:
    """Writes the decisions and rewards of an agent: `Agent(log=…)` makes one.

    A row of kind "decision" holds `id`, `time`, `policy`, `context` (JSON), `arms` (those offered),
    `arm`, `favourite` (what the policy itself would have played), `probabilities` of all arms
    offered (None where they are not known), `target` (f̃ for TS-UCB), `alpha`, and the `mean` and
    `std` that the belief had of every arm. A row of kind "reward" holds `id`, `time`, `reward`
    (None if the decision expired without one) and `expired`. Arms are named by strings.

    A row that cannot be written, as when the disk is full, is a warning and no error: `lost` counts
    them.

    Parameters
    ----------
    target
        The path of a folder, made if it is not there; or a function, called with every row.
    rows_per_file
        This many rows become one Parquet file.

    >>> import tsucb
    >>> rows = []
    >>> agent = tsucb.Agent(["tea", "milk"], exploration=0.1, seed=0, log=rows.append)
    >>> decision = agent.choose({"hour": 9})
    >>> agent.reward(decision.id, 1.0)
    True
    >>> [row["kind"] for row in rows], rows[0]["context"], sum(rows[0]["probabilities"])
    (['decision', 'reward'], '{"hour": 9}', 1.0)
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | Callable[[Row], None],
        *,
        rows_per_file: int = 10_000,
    ) -> None:
        self.rows_per_file = whole_number("rows_per_file", rows_per_file)
        self.lost = 0
        self.folder: Path | None = None
        self._call: Callable[[Row], None] | None = None
        self._start()
        if callable(target):
            self._call = target
            return
        if not isinstance(target, str | os.PathLike):
            raise TypeError(f"a log is a path or a function, not {shown(target)}")
        require("tables", "pyarrow")
        self.folder = Path(target)
        if self.folder.is_file():
            raise ValueError(f"{self.folder} is a file; a decision log is a folder")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _start(self) -> None:
        """Begin without a journal, and with a lock that no thread of another process holds."""
        # A signal handler may decide in the middle of a write.
        self._lock, self._process = threading.RLock(), os.getpid()
        self._journal: LogJournal | None = None

    def decided(self, decisions: "Iterable[Decision]", contexts: Iterable[Any]) -> None:
        """Write decisions, each with the context it was made in."""
        pairs = zip(decisions, contexts, strict=True)
        self._write([decision_row(decision, context) for decision, context in pairs])

    def closed(
        self, rewards: Mapping[str, float | None], now: float, *, expired: bool = False
    ) -> None:
        """Write the rewards of decisions by their ids, None for those closed without one."""
        self._write([reward_row(id, reward, now, expired) for id, reward in rewards.items()])

    def close(self) -> None:
        """Make a Parquet file of what is still in the journal. The log can be written to again.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     DecisionLog(folder).close()
        """
        with self._lock:
            self._finish()

    def _write(self, rows: list[Row]) -> None:
        """Write rows; count those as lost that could not be written, with a warning."""
        if not rows:
            return
        # A caller's function may raise anything; else what a signal handler raises is passed on.
        errors = UNWRITABLE if self._call is None else (Exception,)
        written = 0
        try:
            if self._call is not None:
                for row in rows:
                    self._call(row)
                    written += 1
                return
            lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
            if self._process != os.getpid():  # the child of a fork, with a journal of its own
                self._start()
            with self._lock:
                if self._journal is None:
                    self._journal = LogJournal(self._new_path())
                self._journal.write(lines, len(rows))
                full = self._journal.rows >= self.rows_per_file
        except errors as error:
            self.lost += len(rows) - written
            _warn(f"{len(rows) - written} rows of the decision log could not be written: {error}")
            return
        try:
            if full:
                self.close()
        except UNWRITABLE as error:  # the journal stays and holds the same
            _warn(f"a journal of the decision log could not be made a Parquet file: {error}")

    def _new_path(self) -> Path:
        """Return the name of a journal of this process's own; names sort by time."""
        assert self.folder is not None
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self.folder / f"{stamp}-{os.getpid()}-{secrets.token_hex(4)}{JOURNAL}"

    def _finish(self) -> None:
        journal = self._journal
        if journal is None or self._process != os.getpid():
            return
        # If this fails, the journal stays and holds the same.
        self._journal = None
        journal.close()
        if rows := journal_rows(journal.path):
            with written_whole(journal.path.with_suffix(FINISHED)) as file:
                write_parquet([rows], file)
        journal.path.unlink()


class LogJournal:
    """A file that lines are appended to, each there whole or not at all while the process lives."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, 0
        # Without a buffer: what was written survives the process.
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self.close = weakref.finalize(self, os.close, self._handle)

    def write(self, lines: bytes, rows: int) -> None:
        """Append lines, all or none of them."""
        before, done = os.fstat(self._handle).st_size, 0
        try:
            while done < len(lines):
                done += os.write(self._handle, lines[done:])
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, before)
            raise
        self.rows += rows


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def decision_row(decision: "Decision", context: Any) -> Row:
    """Return a decision as a row of the log."""
    seen = decision.explain()
    try:
        chances: list[float] | None = list(decision.probabilities.values())
    except ValueError:  # the agent does not know them
        chances = None
    return explained_row(seen, decision.id, decision.time, context, decision.favourite, chances)


def explained_row(
    seen: "Explanation", id: str, time: float, context: Any, favourite: Any,
    chances: Sequence[float] | None,
) -> Row:  # fmt: skip
    """Return what a policy saw when it decided as a row of the log."""
    arms = [as_utf8(str(arm)) for arm in seen.arms]
    return {
        "kind": "decision",
        "id": as_utf8(id),
        "time": float(time),
        "policy": seen.policy,
        "context": as_json(context),
        "arms": arms,
        "arm": arms[seen.chosen],
        "favourite": as_utf8(str(favourite)),
        "probabilities": chances,
        "target": seen.target,
        "alpha": seen.alpha,
        "mean": seen.mean.tolist(),
        "std": seen.std.tolist(),
    }


def reward_row(id: str, reward: float | None, now: float, expired: bool) -> Row:
    """Return a reward as a row of the log."""
    row = {"kind": "reward", "id": as_utf8(id), "time": float(now)}
    return row | {"reward": reward, "expired": expired}


def as_utf8(text: str) -> str:
    """Return a text as files hold it: half of a surrogate pair becomes a `?`."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def as_json(context: Any) -> str | None:
    """Return a context as JSON: a mapping of names to values, a list of numbers, or None.

    >>> import numpy as np
    >>> as_json({"age": np.int64(31), "city": "Rome"}), as_json(np.array([0.5, 1.0])), as_json(None)
    ('{"age": 31, "city": "Rome"}', '[0.5, 1.0]', None)
    """
    if context is None:
        return None
    if isinstance(context, Mapping):
        context = {str(_plain(name)): value for name, value in context.items()}
    elif not isinstance(context, list | tuple | np.ndarray) or hasattr(context, "_asdict"):
        with contextlib.suppress(TypeError, ValueError):
            values, positional = values_of(context)
            context = list(values.values()) if positional else dict(values)
    return as_utf8(json.dumps(context, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Return what JSON does not know as something it does."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
