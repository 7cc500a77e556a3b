"""Each call that writes to disk fails in turn: nothing is ever half-written."""

import errno
import itertools
import os
import resource
import signal
import warnings

import pytest
from test_reproduce import Dice

import tsucb
from tsucb.agent import DecisionLog
from tsucb.files import ASIDE, write_whole
from tsucb.logs import read_decision_log
from tsucb.paper.experiments import reproduce

WRITES = ("open", "write", "fsync", "fchmod", "replace", "ftruncate", "mkdir", "unlink")


class Faults:
    """Lets the n-th call that writes fail as on a full disk."""

    def __init__(self, monkeypatch):
        self.left = None
        for name in WRITES:
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))

    def watched(self, call):
        def called(*args, **kwargs):
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    self.left = None
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args, **kwargs)

        return called

    def everywhere(self, attempt):
        """Attempt with a fault at the first call, then at the second, … until no call fails."""
        for number in itertools.count():
            self.left = number
            try:
                attempt()
                failed = False
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
                failed = True
            met, self.left = self.left is None, None
            yield failed
            if not met:
                return number


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)


def left_aside(folder):
    return [path.name for path in folder.rglob(f"*{ASIDE}")]


def test_a_file_is_the_old_one_or_the_new_one(tmp_path, faults):
    path, seen = tmp_path / "file", set()
    write_whole(path, "old")
    for failed in faults.everywhere(lambda: write_whole(path, "new")):
        content = path.read_text()
        assert content == "new" if not failed else content in ("old", "new")
        seen.add((failed, content))
        write_whole(path, "old")  # and the next call is not disturbed by the last
        assert not left_aside(tmp_path)
    assert {(True, "old"), (False, "new")} <= seen


def test_an_agent_is_the_old_one_or_the_new_one(tmp_path, faults):
    path = tmp_path / "agent.tsucb"
    agent = tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), seed=0)
    agent.save(path)
    old = path.read_bytes()
    agent.reward(agent.choose().id, 1.0)
    agent.save(tmp_path / "new.tsucb")
    new = (tmp_path / "new.tsucb").read_bytes()
    for failed in faults.everywhere(lambda: agent.save(path)):
        assert path.read_bytes() in ((old, new) if failed else (new,))
        assert tsucb.Agent.load(path).arms == ("a", "b")
        path.write_bytes(old)
    assert agent.open_decisions == 0
    agent.reward(agent.choose().id, 1.0)  # the agent's knowledge has not changed


def test_a_disk_that_fills_up_within_the_file(tmp_path):
    """At any byte: a limit on the size of files fails where a full disk would."""
    path = tmp_path / "agent.tsucb"
    agent = tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), seed=0)
    agent.save(path)
    old = path.read_bytes()
    agent.reward(agent.choose().id, 1.0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for size in range(0, len(old), 97):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
            with pytest.raises(OSError, match="too large"):
                agent.save(path)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert path.read_bytes() == old
            assert not left_aside(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


class Undrawn(Dice):
    """An experiment without figures, which take long to draw."""

    def figures(self, rows, summary):
        return []


DICE = Undrawn.at("quick")


def test_an_experiment_goes_on_where_it_failed(tmp_path, faults):
    reproduce(DICE, tmp_path / "whole", workers=1)
    wanted = (tmp_path / "whole" / "summary.csv").read_bytes()
    names = iter(range(10**6))
    folder = tmp_path

    def attempt():
        nonlocal folder
        folder = tmp_path / f"{next(names)}"
        reproduce(DICE, folder, workers=1)

    for _ in faults.everywhere(attempt):
        reproduce(DICE, folder, workers=1)
        assert (folder / "summary.csv").read_bytes() == wanted
        assert not left_aside(folder)


def test_a_decision_log_says_what_it_lost_and_stays_readable(tmp_path, faults):
    names = iter(range(10**6))
    log = None

    def attempt():
        nonlocal log
        log = DecisionLog(tmp_path / f"{next(names)}", rows_per_file=4)
        agent = tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), seed=0, log=log)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for _ in range(3):
                agent.reward(agent.choose().id, 1.0)

    for failed in faults.everywhere(attempt):
        if failed:  # the folder itself could not be made
            continue
        table = read_decision_log(log.folder)
        rows = len(table) + int(table["reward"].notna().sum())
        # A reward whose decision was lost is left out, too; a row that stays may be called lost.
        assert rows >= 6 - 2 * log.lost
        assert table["id"].is_unique
