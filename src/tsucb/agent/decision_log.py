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

# Errors of rows that cannot be written as text, and of disks.
UNWRITABLE = (OSError, ValueError, TypeError, RecursionError, MemoryError)


class DecisionLog:
    """Writes the decisions and rewards of an agent: `Agent(log=…)` makes one.

    A row of kind "decision" holds `id`, `time`, `policy`, `context` (JSON), `arms` (those offered),
    `arm`, `favourite` (the policy's own choice), `probabilities` of all arms offered (None if they
    are not known), `target` (f̃ for TS-UCB), `alpha`, and `mean` and `std` of the belief about every
    arm. A row of kind "reward" holds `id`, `time`, `reward` (None if the decision expired without
    one) and `expired`. Arms are named by strings.

    A row that cannot be written, for example because the disk is full, causes a warning instead of
    an error; `lost` counts such rows.

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
        """Begin without a journal, with a lock and the number of this process."""
        # A reentrant lock: a signal handler may call the log in the middle of a write.
        self._lock, self._process = threading.RLock(), os.getpid()
        self._journal: LogJournal | None = None

    def decided(self, decisions: "Iterable[Decision]", contexts: Iterable[Any]) -> None:
        """Write decisions, each with the context it was made in."""
        self._write(decision_row, list(zip(decisions, contexts, strict=True)))

    def closed(
        self, rewards: Mapping[str, float | None], now: float, *, expired: bool = False
    ) -> None:
        """Write the rewards of decisions by their ids; None for a decision closed without one."""
        self._write(reward_row, [(id, reward, now, expired) for id, reward in rewards.items()])

    def close(self) -> None:
        """Make a Parquet file of the rows in the journal. The log can still be written to.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     DecisionLog(folder).close()
        """
        with self._lock:
            self._finish()

    def _write(self, row_of: Callable[..., Row], arguments: list[Any]) -> None:
        """Write rows made from arguments; warn of those that fail, and count them as lost."""
        if not arguments:
            return
        # The user's function may raise anything; other errors may come from a signal handler.
        errors = UNWRITABLE if self._call is None else (Exception,)
        written = 0
        try:
            rows = [row_of(*each) for each in arguments]
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
            lost = len(arguments) - written
            self.lost += lost
            _warn(f"{lost} rows of the decision log could not be written: {error}")
            return
        try:
            if full:
                self.close()
        except UNWRITABLE as error:  # the journal stays, with the same rows
            _warn(f"a journal of the decision log could not be made a Parquet file: {error}")

    def _new_path(self) -> Path:
        """Return a new path of a journal for this process; paths sort by time."""
        assert self.folder is not None
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self.folder / f"{stamp}-{os.getpid()}-{secrets.token_hex(4)}{JOURNAL}"

    def _finish(self) -> None:
        journal = self._journal
        if journal is None or self._process != os.getpid():
            return
        # If this fails, the journal stays, with the same rows.
        self._journal = None
        journal.close()
        if rows := journal_rows(journal.path):
            with written_whole(journal.path.with_suffix(FINISHED)) as file:
                write_parquet([rows], file)
        journal.path.unlink()


class LogJournal:
    """A file to which lines are appended, all of a call or none while the process lives."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, 0
        # Without a buffer, so that lines survive the end of the process.
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
    """Return the explanation of a decision as a row of the log."""
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
    """Return a text that UTF-8 can encode: half of a surrogate pair becomes a `?`."""
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
    """Return a value that JSON cannot hold as one that it can."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
