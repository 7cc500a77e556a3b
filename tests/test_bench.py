"""How `make bench` times, and what it makes of earlier runs; nothing here depends on the clock."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are run from the repository

from benchmarks import rounds
from benchmarks.rounds import Figure, History, Work, change, figure, figures, machine

HERE, ELSEWHERE = {"processor": "A", "numba": "1"}, {"processor": "A", "numba": "2"}


def test_works_are_timed_in_turn_and_compared_within_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine gets slower and slower; the ratios do not change."""
    now, order = [0.0], []

    def takes(name: str, seconds: float):  # type: ignore[no-untyped-def]
        def call() -> None:
            order.append(name)
            now[0] += seconds * (1 + len(order) // 2)  # both of a round are as slow

        return call

    monkeypatch.setattr(rounds.time, "process_time", lambda: now[0])
    works = {
        "base": Work(takes("base", 1.0), 10),
        "other": Work(takes("other", 3.0), 10, "base"),
    }
    order.append("")  # so that rounds begin at even counts
    found = figures(works, rounds=5)
    assert order[1:] == ["base", "other"] * 6  # the first are not timed
    assert found["other"].ratio == pytest.approx(3.0)
    assert str(found["base"]).endswith("µs")


def test_one_disturbed_round_moves_neither_median_nor_margin_much() -> None:
    calm, disturbed = [1.0] * 20, [1.0] * 19 + [50.0]
    assert figure(disturbed, calm) == Figure(1e6, 1.0, 0.0)


def test_a_change_is_told_when_it_is_beyond_both_margins() -> None:
    before = Figure(1.0, 2.0, 0.03)
    assert "SLOWER" in change(Figure(1.0, 2.2, 0.03), before)
    assert "faster" in change(Figure(1.0, 1.8, 0.03), before)
    assert change(Figure(1.0, 2.2, 0.2), before).strip() == "+10.0%"
    assert change(Figure(1.0, 2.05, 0.0), Figure(1.0, 2.0, 0.0)).strip() == "+2.5%"
    assert change(before, None) == ""
    assert change(figure([1.0]), figure([1.0])) == ""


def test_runs_are_compared_with_the_last_on_such_a_machine(tmp_path: Path) -> None:
    history = History(tmp_path / "bench" / "history.jsonl")
    assert history.last(HERE) == {}
    history.add(HERE, {"row": Figure(1.0, 2.0, 0.1)}, "first")
    history.add(HERE, {"row": Figure(1.0, 3.0, 0.1)}, "second")
    history.add(ELSEWHERE, {"row": Figure(1.0, 4.0, 0.1)}, "third")
    assert history.last(HERE) == {"row": Figure(1.0, 3.0, 0.1)}
    assert len(history.path.read_text().splitlines()) == 3


def test_the_machine_is_named_with_its_versions() -> None:
    assert {"processor", "python", "numba", "llvmlite", "numpy"} == machine().keys()
    assert all(machine().values())
