"""The contract of policies, models, environments and laws, as checks for your own classes.

Each check returns nothing, or raises an AssertionError that says in a sentence what does not hold:

    from tsucb.testing import check_policy

    def test_my_policy():
        check_policy(MyPolicy(0.5))

The package's own tests put everything it exports through these checks. Random checks have fixed
seeds, and bounds so wide that a correct class rarely fails: each check says how rarely.
"""

from tsucb.testing.environments import check_environment
from tsucb.testing.laws import check_law
from tsucb.testing.loops import check_same_arms
from tsucb.testing.models import check_model
from tsucb.testing.policies import check_policy

__all__ = [
    "check_environment",
    "check_law",
    "check_model",
    "check_policy",
    "check_same_arms",
]
