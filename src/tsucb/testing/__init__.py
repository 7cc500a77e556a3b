"""The contract of policies, models, environments and laws, as checks to run on one's own.

Each check raises an AssertionError that says in a sentence what does not hold, or returns nothing:

    from tsucb.testing import check_policy

    def test_my_policy():
        check_policy(MyPolicy(0.5))

The package's own tests put everything it exports through these checks. The random ones have fixed
seeds, and bounds so wide that they fail a correct class once in a million.
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
