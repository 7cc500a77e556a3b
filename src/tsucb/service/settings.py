"""How a loop is configured: checked when it is set, so that the fold never meets nonsense."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
import numpy as np

from tsucb.agent.learner import Learner
from tsucb.checks import between
from tsucb.evaluation.settings import model_class
from tsucb.policies.exploring import Exploring
from tsucb.policies.names import named_policy

LONGEST_WAIT = 90 * 86_400.0  # seconds
MOST_ARMS = 10_000

# Models whose arms share one context that the agent reads by itself, or that take no context.
FREE_MODEL = "AdaptiveLinear"
COMING_MODEL = "HybridLinear"  # arms come with the decisions, and may have features
PLAIN_MODELS = ("BernoulliArms", "GaussianArms", "PoissonArms")


class LoopSettings(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """The settings of a loop.

    Parameters
    ----------
    model
        "AdaptiveLinear" for arms that stay; "HybridLinear" for arms that come and go and have
        features; or one without context: "BernoulliArms", "GaussianArms", "PoissonArms".
    policy
        By its name, such as "TS-UCB(10)".
    exploration
        ε, the floor: so often any arm is played. Without it nothing can be compared afterwards.
    reward_wait
        For so many seconds a decision waits for its reward.
    default_reward
        What a decision earned for which no reward came; None to learn nothing from it.
    aggregation
        Of several rewards for a decision "first" counts, or their "sum" when the wait is over.
    learn_early
        Learn a reward when it comes; else when the wait is over. Where only good news is reported,
        what comes early is all good: False learns good and bad at the same pace.
    forgetting
        γ: with every reward all earlier ones come to count γ times as much.
    mode
        "online" plays what it chooses. "apprentice" plays the first arm that was offered and learns
        from its rewards what to choose. "logging" plays the first arm and learns nothing.
    categories
        Features whose numbers are codes.
    most_arms, most_open
        At most so many arms are known, and so many decisions wait; more are refused.
    reward_range
        The least and the largest reward that is accepted.
    retention_days
        Events older than so many days are deleted; what was learned from them stays. None: never.
    note
        Anything, for people.
    """

    model: str = FREE_MODEL
    policy: str = "TS-UCB(10)"
    exploration: float = 0.05
    reward_wait: float = 600.0
    default_reward: float | None = 0.0
    aggregation: Literal["first", "sum"] = "first"
    learn_early: bool = False
    forgetting: float = 1.0
    mode: Literal["online", "apprentice", "logging"] = "online"
    categories: list[str] = []
    most_arms: int = 1_000
    most_open: int = 200_000
    reward_range: tuple[float, float] | None = None
    retention_days: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.exploration <= 1:
            raise ValueError(f"exploration must be 0 to 1, but it is {self.exploration}")
        between("forgetting", self.forgetting, 0, 1)
        if not 0 < self.reward_wait <= LONGEST_WAIT:
            raise ValueError(
                f"reward_wait is in seconds, above 0 and at most {LONGEST_WAIT:,.0f}, but it is "
                f"{self.reward_wait}"
            )
        if isinstance(named_policy(self.policy), Exploring):
            raise ValueError("give the floor as exploration, not with the policy")
        model_class(self.model)
        if self.model not in (FREE_MODEL, COMING_MODEL, *PLAIN_MODELS):
            allowed = ", ".join((FREE_MODEL, COMING_MODEL, *PLAIN_MODELS))
            raise ValueError(f"the model of a loop is one of {allowed}, not {self.model}")
        if not 1 <= self.most_arms <= MOST_ARMS:
            raise ValueError(f"most_arms must be 1 to {MOST_ARMS:,}, but it is {self.most_arms}")
        if self.most_open < 1:
            raise ValueError(f"most_open must be at least 1, but it is {self.most_open}")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError("reward_range is the least and the largest reward, in this order")
        if self.retention_days is not None and self.retention_days < 1:
            raise ValueError(
                f"retention_days must be at least 1, or null, but it is {self.retention_days}"
            )
        if self.default_reward is not None and not math.isfinite(self.default_reward):
            raise ValueError("default_reward must be a finite number, or null")
        if self.default_reward is not None and self.model in PLAIN_MODELS:
            model_class(self.model)().check_rewards(np.array([self.default_reward]))

    def learner(self, arms: list[str], seed: int | None) -> Learner:
        """A learner with these settings, which knows nothing yet."""
        arguments: dict[str, Any] = {
            "policy": self.rule(), "forgetting": self.forgetting, "seed": seed,
        }  # fmt: skip
        if self.model in PLAIN_MODELS:
            arguments["model"] = model_class(self.model)()
        else:
            arguments["categories"] = self.categories
        if self.arms_come:
            return Learner(None, most_arms=self.most_arms, **arguments)
        return Learner(arms, **arguments)

    @property
    def arms_come(self) -> bool:
        """Whether arms come with the decisions, and need not be known before."""
        return self.model == COMING_MODEL

    def is_warm(self, lists: bool = False) -> bool:
        """Whether this process need not compile anything for these settings."""
        return self._kind(lists) in _WARM

    def _kind(self, lists: bool) -> Any:
        rule = self.rule()
        inner = type(getattr(rule, "policy", None))
        return self.model, type(rule), inner, self.forgetting == 1, lists

    def warm(self, lists: bool = False) -> None:
        """Decide and learn once, so that no request has to wait for the compiler; blocks."""
        if self.is_warm(lists):
            return
        for features in (1, 24):  # linear models keep their numbers in two ways, by how many
            learner = self.learner(["a", "b"], seed=0)
            context = {f"x{i}": float(i) for i in range(features)}
            given = None if self.model in PLAIN_MODELS else context
            offered = {"a": {"y": 1.0}, "b": {"y": 2.0}} if self.arms_come else None
            if lists:
                learner.rank(given, 2, offered)
                continue
            for n in range(3):
                learner.decide(given, offered)
                row = learner.read(given, "a", {"y": 1.0} if self.arms_come else None)
                learner.count("a")
                learner.learn("a", row, float(n % 2))
        _WARM.add(self._kind(lists))

    @property
    def learns_at_once(self) -> bool:
        """Whether a reward is learned when it comes; a sum is not known before the wait is over."""
        return self.learn_early and self.aggregation == "first"

    def rule(self) -> Any:
        """The policy, with its floor."""
        policy = named_policy(self.policy)
        return Exploring(policy, self.exploration) if self.exploration else policy

    def learning_like(self, other: LoopSettings) -> LoopSettings:
        """These settings, but with what `learns_like` looks at from the others."""
        return msgspec.structs.replace(
            self, model=other.model, forgetting=other.forgetting, categories=other.categories
        )

    def learns_like(self, other: LoopSettings) -> bool:
        """Whether what was learned with the other settings is what these would have learned."""
        mine = (self.model, self.forgetting, sorted(self.categories))
        return mine == (other.model, other.forgetting, sorted(other.categories))


def changed(settings: LoopSettings, changes: dict[str, Any]) -> LoopSettings:
    """Other settings with some changes, checked."""
    return msgspec.convert({**msgspec.to_builtins(settings), **changes}, LoopSettings)


def loop_settings(before: LoopSettings, given: dict[str, Any]) -> tuple[LoopSettings, list[str]]:
    """Return the settings of a loop in a file, and its arms."""
    arms = msgspec.convert(given.get("arms", []), list[str])
    return changed(before, {k: v for k, v in given.items() if k != "arms"}), arms


_WARM: set[Any] = set()  # the combinations that this process has compiled, or found
