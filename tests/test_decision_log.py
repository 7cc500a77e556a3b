"""The decision log: what it holds, what survives, and what all tools read from it."""

import itertools
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import forgery
import interrupts
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import tsucb
from tsucb.agent import DecisionLog
from tsucb.agent.decision_log import as_json
from tsucb.logs import read_decision_log, read_decisions
from tsucb.logs.decision_log import is_decision_log


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def make_agent(log, clock=time.time, **more):
    settings = {"exploration": 0.3, "seed": 0} | more
    return tsucb.Agent(["tea", "milk", 3], log=log, clock=clock, **settings)


def test_every_decision_is_a_row_with_all_that_was_seen(tmp_path):
    clock = Clock()
    agent = make_agent(tmp_path / "log", clock)
    made = []
    for i in range(30):
        clock.now += 1
        decision = agent.choose({"hour": i, "city": "Rome" if i % 2 else None})
        made.append(decision)
        clock.now += 0.5
        if i % 3 == 0:
            agent.reward(decision.id, float(i))
    table = read_decision_log(tmp_path / "log")
    assert table["id"].tolist() == [d.id for d in made]
    assert table["arm"].tolist() == [str(d.arm) for d in made]
    assert table["favourite"].tolist() == [str(d.favourite) for d in made]
    assert table["time"].tolist() == [d.time for d in made]
    assert [list(arms) for arms in table["arms"]] == [["tea", "milk", "3"]] * 30
    assert table["propensity"].tolist() == pytest.approx([d.probability for d in made])
    assert [json.loads(c)["hour"] for c in table["context"]] == list(range(30))
    assert json.loads(table["context"][0]) == {"hour": 0, "city": None}
    explained = [d.explain() for d in made]
    assert table["alpha"].tolist() == pytest.approx([e.alpha for e in explained], nan_ok=True)
    assert table["target"].tolist() == pytest.approx([e.target for e in explained], nan_ok=True)
    assert list(table["mean"][7]) == pytest.approx(explained[7].mean.tolist())
    rewarded = table[table["id"].isin([d.id for d in made[::3]])]
    assert rewarded["reward"].tolist() == [float(i) for i in range(0, 30, 3)]
    assert (rewarded["reward_time"] - rewarded["time"]).tolist() == pytest.approx([0.5] * 10)
    assert not rewarded["expired"].any()


def test_late_and_missing_rewards_have_their_place(tmp_path):
    clock = Clock()
    agent = make_agent(tmp_path / "log", clock)
    decisions = []
    for _ in range(6):
        decisions.append(agent.choose())
        clock.now += 10
    agent.reward(decisions[4].id, 2.0)
    agent.reward(decisions[0].id, 1.0)
    assert agent.expire(35, reward=0.0) == 2  # the second and the third
    assert agent.expire(25) == 1  # the fourth, about which nothing is known
    table = read_decision_log(tmp_path / "log")
    assert table["reward"].tolist() == pytest.approx([1, 0, 0, np.nan, 2, np.nan], nan_ok=True)
    assert table["expired"].tolist() == [False, True, True, True, False, False]
    assert np.isnan(table["reward_time"][5])
    read = read_decisions(tmp_path / "log")
    with pytest.raises(ValueError, match="2 of 6 decisions have no reward; say what that means"):
        read.rewarded()
    assert read.rewarded(0).reward.tolist() == [1, 0, 0, 0, 2, 0]
    assert read.rewarded("drop").reward.tolist() == [1, 0, 0, 2]
    with pytest.raises(ValueError, match="a number, 'drop' or 'recent', not 'maybe'"):
        read.rewarded("maybe")


def test_recent_decisions_are_left_out_for_fairness(tmp_path):
    """Rewards of 1 come after 10 seconds, those of 0 after 100: the young ones are all of 1."""
    clock = Clock()
    agent = make_agent(tmp_path / "log", clock)
    due = []
    for i in range(400):
        clock.now += 1
        due.append((clock.now + (10 if i % 2 else 100), agent.choose().id, float(i % 2)))
        due.sort()
        while due and due[0][0] <= clock.now:
            _, id, reward = due.pop(0)
            agent.reward(id, reward)
    read = read_decisions(tmp_path / "log")
    assert read.rewarded("drop").reward.mean() > 0.55
    assert read.rewarded("recent").reward.mean() == pytest.approx(0.5, abs=0.005)


def test_an_arm_that_was_not_offered_is_refused_in_a_table_of_decisions(tmp_path):
    agent = make_agent(tmp_path / "log")
    for _ in range(3):
        agent.choose()
    table = read_decision_log(tmp_path / "log")
    assert len(read_decisions(table)) == 3
    table.loc[1, "arm"] = "coffee"
    with pytest.raises(ValueError, match=r"first number 2: the logged arm was not available"):
        read_decisions(table)


def test_rows_become_parquet_and_journals_go(tmp_path):
    log = DecisionLog(tmp_path / "log", rows_per_file=20)
    agent = make_agent(log)
    for i in range(25):
        agent.reward(agent.choose([float(i)]).id, 1.0)
    files = sorted(p.suffix for p in (tmp_path / "log").iterdir())
    assert files == [".jsonl", ".parquet", ".parquet"]
    before = read_decision_log(tmp_path / "log")
    log.close()
    assert {p.suffix for p in (tmp_path / "log").iterdir()} == {".parquet"}
    after = read_decision_log(tmp_path / "log")
    pd.testing.assert_frame_equal(before, after, check_dtype=False)
    assert after["reward"].tolist() == [1.0] * 25
    agent.choose([1.0])  # a closed log goes on
    assert len(read_decision_log(tmp_path / "log")) == 26
    # Other tools read the files as they are.
    assert len(pd.read_parquet(next((tmp_path / "log").glob("*.parquet")))) > 0


CRASH = """
import os, sys, time
import tsucb
agent = tsucb.Agent(["a", "b"], exploration=0.5, seed=0, log=sys.argv[1])
for i in range(10**9):
    decision = agent.choose({"i": i})
    os.write(1, f"{decision.id}\\n".encode())
"""


def test_a_killed_process_loses_nothing_that_it_has_returned(tmp_path):
    folder = tmp_path / "log"
    command = [sys.executable, "-c", CRASH, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    told = [process.stdout.readline() for _ in range(300)]
    process.send_signal(signal.SIGKILL)
    told += process.communicate()[0].splitlines()
    ids = {line.decode().strip() for line in told if line.strip()}
    table = read_decision_log(folder)
    whole = {id for id in ids if "-" in id and id in set(table["id"])}
    assert len(whole) >= len(ids) - 1  # the last line told may be cut off


def test_a_cut_off_last_line_is_left_out_and_any_other_is_an_error(tmp_path):
    agent = make_agent(tmp_path / "log")
    for _ in range(5):
        agent.choose()
    [journal] = (tmp_path / "log").glob("*.jsonl")
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])
    assert len(read_decision_log(tmp_path / "log")) == 4
    journal.write_bytes(whole.replace(b'"kind"', b'"ki', 1))
    with pytest.raises(ValueError, match="line 1, is not well formed"):
        read_decision_log(tmp_path / "log")


GOOD = {
    "kind": "decision", "id": "1-a", "time": 1.0, "policy": "TS", "context": None, "arms": ["a"],
    "arm": "a", "favourite": "a", "probabilities": [1.0], "target": 0.0, "alpha": 0.0,
    "mean": [0.0], "std": [1.0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("7", "a decision or a reward, not 7"),
        ("[1, 2]", "a decision or a reward"),
        ({"kind": "other"}, "a decision or a reward"),
        ({"kind": ["decision"]}, "a decision or a reward"),
        ({"id": [1]}, "its id is"),
        ({"time": None}, "its time is None"),
        ({"time": math.nan}, "its time is nan"),
        ({"time": 10**400}, "a number of 401 digits"),
        ({"context": {"x": 1}}, "its context is"),
        ({"arms": []}, "its arms is"),
        ({"arms": "a"}, "its arms is 'a'"),
        ({"arm": "b"}, "its arm 'b' was not offered"),
        ({"probabilities": [0.5, 0.5]}, "needs one probability, mean and std for each arm"),
        ({"probabilities": [2.0]}, "its probabilities is"),
        ({"mean": ["x"]}, "its mean is"),
        ({"std": None}, "its std is None"),
        ({"favourite": "x" * 10**6}, ""),
        ({"kind": "reward", "reward": math.inf, "expired": False}, "its reward is inf"),
        ({"kind": "reward", "reward": 1.0, "expired": "no"}, "its expired is 'no'"),
    ],
)
def test_rows_that_no_log_has_written_are_refused_in_one_sentence(tmp_path, change, message):
    line = change if isinstance(change, str) else json.dumps(GOOD | change)
    (tmp_path / "1.jsonl").write_text(f"{json.dumps(GOOD)}\n{line}\n")
    if not message:
        assert len(read_decision_log(tmp_path)) == 1  # a copy of the first
        return
    with pytest.raises(ValueError, match=rf"line 2, is not well formed: .*{message}") as caught:
        read_decision_log(tmp_path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("context", ["[" * 100_000, '{"x": 1' + "0" * 400 + "}", "{"])
def test_contexts_that_are_no_json_are_refused_in_one_sentence(tmp_path, context):
    (tmp_path / "1.jsonl").write_text(json.dumps(GOOD | {"context": context}) + "\n")
    with pytest.raises(ValueError, match="a context that cannot be read") as caught:
        read_decisions(tmp_path)
    assert len(str(caught.value)) < 300


def test_logs_that_lie_are_refused_or_harmless():
    """A few of `python tests/forgery.py logs 5000`."""
    counts, failures = forgery.fuzz_logs(60)
    assert not failures
    assert min(counts.values()) > 0


def test_a_clock_of_nanoseconds_and_names_that_are_no_text_can_be_reported(tmp_path):
    agent = make_agent(tmp_path / "log", itertools.count(1.7e18, 1e9).__next__)
    agent.add_arm("\ud800")
    for _ in range(40):
        agent.reward(agent.choose({"\udc00": "\ud800"}).id, 1.0)
    agent.report(tmp_path / "page.html")
    agent.log.close()
    assert agent.log.lost == 0
    assert len(read_decision_log(tmp_path / "log")) == 40
    agent.report(tmp_path / "page.html")
    assert "1.7e+18 s" in (tmp_path / "page.html").read_text()


def test_parquet_files_that_ask_for_too_much_are_refused_before_they_are_read(tmp_path):
    wide, long, zeros = (tmp_path / f"{name}.parquet" for name in ("wide", "long", "zeros"))
    pa.parquet.write_table(pa.table({f"c{i}": [1] for i in range(10_001)}), wide)
    column = pa.DictionaryArray.from_arrays(np.zeros(2_000_000, np.int8), ["a"])
    pa.parquet.write_table(pa.table({"arm": column}), long, compression="zstd")
    zeros.write_bytes(b"PAR1" + bytes(100) + (2**31).to_bytes(4, "little") + b"PAR1")
    for path, message in (
        (wide, "has 10,001 columns, and 10,000 are read at most"),
        (long, r"2,000,000 rows in [\d,]+ bytes cannot be"),
        (zeros, "longer than that of a table"),
    ):
        for read in (
            lambda path=path: read_decisions(path, uniform=True),
            lambda path=path: tsucb.Agent(["a"], seed=0).fit(path),
        ):
            with pytest.raises(ValueError, match=message):
                read()


@pytest.mark.parametrize(
    "said",
    [
        b"{}", b"x", b"[" * 100_000, b'{"columns": [{}]}', b'{"index_columns": [], "columns": [5]}',
        b'{"index_columns": ["x"], "columns": [], "column_indexes": [{}]}',
    ],
)  # fmt: skip
def test_what_a_parquet_file_says_for_pandas_may_be_anything(tmp_path, said):
    path, table = tmp_path / "it.parquet", pa.table({"arm": ["a"], "reward": [1.0], "x": [2.0]})
    pa.parquet.write_table(table.replace_schema_metadata({b"pandas": said}), path)
    agent = tsucb.Agent(["a"], seed=0)
    for read in (lambda: read_decisions(path, uniform=True), lambda: agent.fit(path)):
        with pytest.raises(ValueError, match=r"cannot read .*it\.parquet"):
            read()


def test_a_journal_beside_its_parquet_file_counts_once(tmp_path):
    log = DecisionLog(tmp_path / "log")
    agent = make_agent(log)
    agent.choose()
    [journal] = (tmp_path / "log").glob("*.jsonl")
    left = journal.read_bytes()
    log.close()
    journal.write_bytes(left)  # as if killed between the two
    assert len(read_decision_log(tmp_path / "log")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_writes_a_file_of_its_own(tmp_path):
    agent = make_agent(tmp_path / "log")
    agent.choose()

    def child():
        for _ in range(3):
            agent.choose()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    agent.choose()
    assert len(list((tmp_path / "log").glob("*.jsonl"))) == 2
    assert len(read_decision_log(tmp_path / "log")) == 5


def test_a_list_that_is_closed_has_a_row_for_each_place():
    rows = []
    agent = make_agent(rows.append)
    ranking = agent.rank(None, 2)
    agent.close(ranking.id)
    assert [row["kind"] for row in rows] == ["decision"] * 2 + ["reward"] * 2
    assert [row["id"] for row in rows[:2]] == [row["id"] for row in rows[2:]]
    assert all(row["expired"] and row["reward"] is None for row in rows[2:])


def test_a_context_that_is_no_json_is_a_warning_and_no_error():
    class Sizes:
        def transform(self, contexts):
            return [[float(len(context["pairs"]))] for context in contexts]

    rows = []
    agent = tsucb.Agent(["tea", "milk"], 1, transformer=Sizes(), seed=0, log=rows.append)
    with pytest.warns(RuntimeWarning, match="1 rows of the decision log could not be written"):
        decision = agent.choose({"pairs": {(1, 2): 3}})
    assert agent.log.lost == 1
    assert agent.reward(decision.id, 1.0)
    assert [row["kind"] for row in rows] == ["reward"]


def test_what_cannot_be_written_is_a_warning_and_no_error(tmp_path):
    def broken(row):
        raise OSError("No space left on device")

    agent = make_agent(broken)
    with pytest.warns(RuntimeWarning, match="could not be written: No space left"):
        decision = agent.choose()
    with pytest.warns(RuntimeWarning, match="could not be written"):
        assert agent.reward(decision.id, 1.0)
    assert agent.log.lost == 2
    agent = make_agent(tmp_path / "log")
    agent.choose()
    agent.log._journal.close()
    with pytest.warns(RuntimeWarning, match="Bad file descriptor"):
        agent.choose()
    for wrong in (7, b"log"):
        with pytest.raises(TypeError, match="a log is a path or a function"):
            make_agent(wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; a decision log is a folder"):
        make_agent(tmp_path / "file")


def test_many_contexts_and_loaded_agents_are_logged_too(tmp_path):
    rows = []
    agent = make_agent(rows.append)
    agent.choose_many(pd.DataFrame({"x": [1, 2], "c": ["u", "v"]}))
    agent.choose_many([{"x": 3, "c": "u"}])
    assert [row["context"] for row in rows] == [
        '{"x": 1, "c": "u"}',
        '{"x": 2, "c": "v"}',
        '{"x": 3, "c": "u"}',
    ]
    agent.save(tmp_path / "a.tsucb")
    again = tsucb.Agent.load(tmp_path / "a.tsucb", log=rows.append)
    again.reward(rows[0]["id"], 1.0)
    assert rows[-1]["kind"] == "reward"
    silent = tsucb.Agent.load(tmp_path / "a.tsucb")
    assert silent.log is None
    with pytest.raises(ValueError, match="make the agent with log="):
        silent.report(tmp_path / "page.html")
    matrix = tsucb.Agent(["a", "b"], features=2, seed=0, log=rows.append)
    matrix.choose_many(np.eye(2))
    assert [row["context"] for row in rows[-2:]] == ["[1.0, 0.0]", "[0.0, 1.0]"]
    assert rows[-1]["probabilities"] is None  # neither a floor nor beliefs


def test_contexts_as_json():
    assert as_json(pd.Series({"a": 1.5})) == '{"a": 1.5}'
    assert as_json({"when": pd.Timestamp("2024-01-02"), 3: {"x": np.float32(0.5)}}) == (
        '{"when": "2024-01-02 00:00:00", "3": {"x": 0.5}}'
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_are_passed_on_and_lose_no_row_of_a_decision_that_was_returned(tmp_path):
    """An exception from a signal handler during a write does not mean that a row is invalid."""
    log, rng = DecisionLog(tmp_path / "log", rows_per_file=7), np.random.default_rng(0)
    agent = make_agent(log, model=tsucb.BernoulliArms())
    made, paid, interrupted = {agent.choose().id}, {}, 0
    before = signal.getsignal(signal.SIGALRM)
    alarm = interrupts.Alarm()
    try:
        while interrupted < 200:
            within = 10 ** rng.uniform(-5, -2.5)
            if id := next(iter(made - paid.keys()), None):
                paid[id] = not alarm.call(lambda id=id: agent.reward(id, 1.0), within)[1]
                interrupted += not paid[id]
            decision, stopped = alarm.call(agent.choose, within)
            interrupted += stopped
            made |= set() if stopped else {decision.id}
    finally:
        signal.signal(signal.SIGALRM, before)
    table = read_decision_log(tmp_path / "log").set_index("id")
    assert log.lost == 0
    assert made <= set(table.index)
    assert table.loc[[id for id, whole in paid.items() if whole], "reward"].eq(1.0).all()


def test_other_folders_and_files_are_told_apart(tmp_path):
    assert not is_decision_log(tmp_path)
    with pytest.raises(ValueError, match="there is no decision log"):
        read_decision_log(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no decisions"):
        read_decision_log(tmp_path)
    other = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    assert not is_decision_log(other)
    with pytest.raises(ValueError, match="is no decision log: it has the columns a"):
        read_decision_log(other)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    assert not is_decision_log(tmp_path / "broken.parquet")
    with pytest.raises(ValueError, match="cannot read"):
        read_decision_log(tmp_path / "broken.parquet")
    agent = make_agent(tmp_path / "log", exploration=0.0)
    agent.choose()
    with pytest.raises(ValueError, match=r"holds no probabilities.*Agent\(exploration=0\.05"):
        read_decisions(tmp_path / "log")


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_whole_lines(tmp_path, monkeypatch):
    agent = make_agent(tmp_path / "log")
    agent.choose()
    write, calls = os.write, []

    def full(handle, data):
        calls.append(data)
        if len(calls) == 1:
            return write(handle, data[:17])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            agent.choose()
    agent.choose()
    assert agent.log.lost == 1
    assert len(read_decision_log(tmp_path / "log")) == 2
