"""The cache of compiled code: found again, and never stale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

import tsucb
from tsucb.agent.calls import _bind
from tsucb.compiled import _is_own
from tsucb.files import cache_folder
from tsucb.policies.policy import Policy

PACKAGE = Path(tsucb.__file__).parent

FIRST_STEP = """
import tsucb
from tsucb.numeric.special import normal_cdf
normal_cdf(1.0)
print(sum(normal_cdf.stats.cache_hits.values()), tsucb.compiled.kernel_folder())
"""


def first_step(package: Path, cache: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(package.parent), "TSUCB_CACHE": str(cache)}
    out = subprocess.run(
        [sys.executable, "-c", FIRST_STEP], env=environment, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def test_a_second_process_compiles_nothing_and_an_edited_source_is_never_stale(tmp_path):
    package = tmp_path / "tsucb"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    hits, folder = first_step(package, tmp_path / "cache")
    assert hits == "0"
    assert first_step(package, tmp_path / "cache") == ["1", folder]
    with (package / "belief.py").open("a") as file:  # not the file of the function that is called
        file.write("# edited\n")
    hits, other = first_step(package, tmp_path / "cache")
    assert hits == "0"
    assert other != folder


FOREIGN_CLASS = """
from typing import NamedTuple
import numpy as np, tsucb
from tsucb.compiled import implements
from tsucb.policies.policy import Policy, choose
if {own}:
    class Mine(Policy, NamedTuple("Mine", [])): pass
    @implements(choose, Mine)
    def _(policy, belief, rng): return 0
    Mine.__module__ = "nowhere"
policy = Mine() if {own} else tsucb.Greedy()
belief = tsucb.GaussianBelief([0.0], [1.0])
agent = tsucb.Agent(["one"], 2, policy=policy, seed=0)
agent.reward(agent.choose([1.0, 2.0]).id, 1.0)
print(policy.choose(belief, np.random.default_rng(0)))
"""


def test_a_class_of_a_script_does_not_spoil_the_cache_for_the_next_program(tmp_path):
    environment = os.environ | {"TSUCB_CACHE": str(tmp_path)}
    for own in (False, True, False):
        script = FOREIGN_CLASS.format(own=own)
        out = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True
        )
        assert out.stdout == "0\n", out.stderr


class Foreign(Policy, NamedTuple("Foreign", [])):
    """A class from outside the package."""


def test_a_structure_that_holds_a_class_of_a_script_is_not_cached():
    model = tsucb.NIGLinear(2)
    for policy, own in ((tsucb.Greedy(), True), (Foreign(), False)):
        bound = _bind(policy, model, model.start(1), (2,), np.random.default_rng(0), np.empty(5))
        assert _is_own(numba.typeof(bound)) is own


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TSUCB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert cache_folder() == tmp_path / "tsucb"
