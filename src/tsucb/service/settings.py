"""The settings of a loop, which are checked before they reach the log."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tsucb.agent.learner import Learner
from tsucb.checks import LARGEST
from tsucb.evaluation.settings import model_class
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.curves import ROWS
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.policies.exploring import Exploring
from tsucb.policies.names import named_policy
from tsucb.service.scheduling import in_process

LONGEST_WAIT = 90 * 86_400.0  # seconds

FREE_MODEL: Final = "AdaptiveCurves"  # the agent's default
COMING_MODEL: Final = "HybridCurves"  # arms come with the decisions, and may have features
LINEAR_MODELS = {"AdaptiveLinear": AdaptiveLinear, "HybridLinear": HybridLinear}
PLAIN_MODELS = ("BernoulliArms", "GaussianArms", "PoissonArms")  # without context

Share = Annotated[float, Meta(ge=0, le=1)]
Reward = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class LoopSettings(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """The settings of a loop.

    Parameters
    ----------
    model : AdaptiveCurves for arms that stay, AdaptiveLinear if it is never to bend or to forget;
        HybridCurves for arms that come and go and have features, HybridLinear likewise; the others
        without context.
    policy : The rule that chooses, by its name.
    exploration : ε, the floor: this share of decisions plays a random arm, so that the log can be
        evaluated.
    holdout : This share of decisions always plays the baseline, which is the first arm offered; the
        gain of the loop is measured against it. All decisions of a person are in it, or none.
    reward_wait : Seconds for which a decision waits for its reward.
    default_reward : The reward of a decision if none comes; null to learn nothing then.
    aggregation : Of several rewards of a decision, the first counts, or their sum when the wait is
        over.
    learn_early : Learn a reward when it comes, not when the wait is over. Leave it false where only
        good outcomes are reported: early rewards are all good then.
    forgetting : γ: with every reward, all earlier ones count γ times as much.
    mode : online plays what the policy chooses; apprentice plays the first arm offered and learns
        from its rewards; logging plays it and learns nothing.
    categories : Features whose numbers are codes of categories.
    most_arms : The most arms that the loop may have.
    most_open : The most decisions that may wait for a reward; more get status 429.
    reward_range : The least and the largest reward that is accepted; null for any.
    retention_days : Events older than this are deleted; what was learned from them stays. Null to
        keep all.
    note : Anything, for people.
    """

    model: Literal[
        "AdaptiveCurves",
        "AdaptiveLinear",
        "HybridCurves",
        "HybridLinear",
        "BernoulliArms",
        "GaussianArms",
        "PoissonArms",
    ] = FREE_MODEL
    policy: Annotated[str, Meta(max_length=40)] = "TS-UCB(1)"
    exploration: Share = 0.05
    holdout: Share = 0.0
    reward_wait: Annotated[float, Meta(gt=0, le=LONGEST_WAIT)] = 600.0
    default_reward: Reward | None = 0.0
    aggregation: Literal["first", "sum"] = "first"
    learn_early: bool = False
    forgetting: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mode: Literal["online", "apprentice", "logging"] = "online"
    categories: Annotated[list[str], Meta(max_length=1_000)] = []
    most_arms: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    most_open: Annotated[int, Meta(ge=1, le=10_000_000)] = 200_000
    reward_range: tuple[Reward, Reward] | None = None
    retention_days: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    note: Annotated[str, Meta(max_length=10_000)] = ""

    def __post_init__(self) -> None:
        if isinstance(named_policy(self.policy), Exploring):
            raise ValueError("give the floor as exploration, not with the policy")
        if self.reward_range is not None and not self.reward_range[0] < self.reward_range[1]:
            raise ValueError("reward_range is the least and the largest reward, in this order")
        if self.default_reward is not None and self.model in PLAIN_MODELS:
            model_class(self.model)().check_rewards(np.array([self.default_reward]))

    def learner(self, arms: list[str], seed: int | None) -> Learner:
        """Return a learner with these settings and no rewards."""
        arguments: dict[str, Any] = {
            "policy": self.rule(), "forgetting": self.forgetting, "seed": seed,
        }  # fmt: skip
        if self.model in PLAIN_MODELS:
            arguments["model"] = model_class(self.model)()
        else:
            arguments["categories"] = self.categories
        if self.model in LINEAR_MODELS:
            arguments["model"] = LINEAR_MODELS[self.model](0)
        if self.arms_come:
            return Learner(None, most_arms=self.most_arms, **arguments)
        return Learner(arms, **arguments)

    @property
    def arms_come(self) -> bool:
        """Whether arms come with the decisions, and need not be added before."""
        return self.model in (COMING_MODEL, "HybridLinear")

    def is_warm(self, lists: bool = False) -> bool:
        """Return whether this process has compiled all that these settings need."""
        return self._kind(lists) in _WARM

    def _kind(self, lists: bool) -> Any:
        rule = self.rule()
        inner = type(getattr(rule, "policy", None))
        return self.model, type(rule), inner, self.forgetting == 1, lists

    def warm(self, lists: bool = False, serving: bool = False) -> None:
        """Compile what requests need: decide, and learn until curves may be fitted; blocks.

        While requests are served, another process compiles first, and this one reads the code.
        """
        if self.is_warm(lists):
            return
        if serving:
            in_process(LoopSettings.warm, self, lists)
        # Linear models have two memory layouts, for few and for many features, and large models
        # decide with a function of their own.
        for features in (1, 24, 200):
            learner = self.learner(["a", "b"], seed=0)
            context = {f"x{i}": float(i) for i in range(features)}
            given = None if self.model in PLAIN_MODELS else context
            offered = {"a": {"y": 1.0}, "b": {"y": 2.0}} if self.arms_come else None
            if lists:
                learner.rank(given, 2, offered)
                continue
            for n in range(3 * ROWS if self.model in (FREE_MODEL, COMING_MODEL) else 3):
                if given:
                    given["x0"] = float(n % 7)  # only features that vary get curves
                learner.decide(given, offered)
                row = learner.read(given, "a", {"y": 1.0} if self.arms_come else None)
                learner.count("a")
                learner.learn("a", row, float(n % 2))
        _WARM.add(self._kind(lists))

    @property
    def has_control(self) -> bool:
        """Whether the log has random decisions, which tell what random choice would earn."""
        return self.mode == "online" and self.exploration > 0

    @property
    def learns_at_once(self) -> bool:
        """Whether a reward is learned when it comes; a sum is complete only after the wait."""
        return self.learn_early and self.aggregation == "first"

    def rule(self) -> Any:
        """Return the policy with its floor."""
        return floored(self.policy, self.exploration)[0]

    def rule_names(self) -> tuple[str, str]:
        """Return the names of the policy and of its target."""
        return floored(self.policy, self.exploration)[1]

    def learning_like(self, other: LoopSettings) -> LoopSettings:
        """Return these settings with the model, forgetting and categories of `other`."""
        return msgspec.structs.replace(
            self, model=other.model, forgetting=other.forgetting, categories=other.categories
        )

    def learns_like(self, other: LoopSettings) -> bool:
        """Return whether both settings learn the same from the same log."""
        mine = (self.model, self.forgetting, sorted(self.categories))
        return mine == (other.model, other.forgetting, sorted(other.categories))


@lru_cache(1_000)  # every decision needs it
def floored(name: str, exploration: float) -> tuple[Any, tuple[str, str]]:
    """Return a policy with a floor of this share; the names of the policy and of its target."""
    policy = named_policy(name)
    rule: Any = Exploring(policy, exploration) if exploration else policy
    return rule, (rule.name, rule.target_name)


def changed(settings: LoopSettings, changes: dict[str, Any]) -> LoopSettings:
    """Return changed settings; raise ValidationError, a ValueError, if a change is wrong."""
    return msgspec.convert({**msgspec.to_builtins(settings), **changes}, LoopSettings)


def loop_settings(before: LoopSettings, given: dict[str, Any]) -> tuple[LoopSettings, list[str]]:
    """Return the settings with the changes of a file, and the arms that the file names."""
    arms = msgspec.convert(given.get("arms", []), list[str])
    return changed(before, {k: v for k, v in given.items() if k != "arms"}), arms


_WARM: set[Any] = set()  # the kinds of settings that this process has compiled
