"""The base class of models with a normal prior whose mean and covariance the user sets."""

from typing import Any

import numpy as np

from tsucb.checks import LARGEST, SMALLEST, floats, within
from tsucb.models.model import Model
from tsucb.models.regressions import Regressions, predict_many, triangular
from tsucb.models.spectral import Spectral
from tsucb.numeric.arrays import Floats, Integers


class GaussianPrior(Model):
    """The base class of `ContextualLinear`, `NIGLinear` and `Linear`.

    A model has the field `features`, and `prior_mean` and `prior_covariance` (or `prior_precision`)
    as numbers, vectors or matrices. It derives `prior_root`, the lower Cholesky root of the
    covariance (d, d), and `prior_std`, the smallest standard deviation in any direction.
    """

    merges = True

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Check the fields of the prior, and compute the derived ones, in place."""
        d, name = values["features"], "prior_precision"
        mean = floats("prior_mean", values["prior_mean"])
        if mean.shape not in ((), (d,)) or not np.isfinite(mean).all():
            raise ValueError(f"prior_mean must be a finite number or vector of length {d}")
        if name in values:
            precision = square(values[name], d, name)
            covariance = np.linalg.inv(precision)
            values[name] = precision
        else:
            covariance = square(values["prior_covariance"], d, "prior_covariance")
            values["prior_covariance"] = covariance
        values["prior_mean"] = np.broadcast_to(mean, d).astype(np.float64)
        root: Floats = np.linalg.cholesky(covariance)
        values["prior_root"] = root
        values["prior_std"] = float(np.sqrt(np.linalg.eigvalsh(covariance).min()))
        if not within(mean) or not within(root) or not (np.diag(root) >= SMALLEST).all():
            raise ValueError(
                f"the prior has means beyond ±{LARGEST:g}, or standard deviations that are not "
                f"from {SMALLEST:g} to {LARGEST:g}"
            )

    def prior(self: Any, state: Any, rng: np.random.Generator | None = None) -> None:
        """Write the prior into all regressions, in place."""
        regressions = getattr(state, "regressions", state)
        regressions.set_posteriors(self.prior_mean, triangular(self.prior_root))

    def fading(self, state: Any) -> Any:
        """Return the state with `Regressions`, which must be without data, as `Spectral`."""
        if isinstance(state, Regressions):
            return Spectral.of(state)
        if isinstance(getattr(state, "regressions", None), Regressions):
            return state._replace(regressions=Spectral.of(state.regressions))
        return state

    def predictions(self, state: Any, contexts: Floats, arms: Integers) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the arms at many contexts."""
        return predict_many(getattr(state, "regressions", state), contexts, arms)


def square(value: Any, d: int, name: str) -> Floats:
    """Return a number, vector or matrix as a positive definite matrix (d, d)."""
    array = floats(name, value)
    if array.shape not in ((), (d,), (d, d)) or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be a finite number, vector of length {d} or {d} x {d} matrix"
        )
    matrix = array if array.ndim == 2 else np.diag(np.broadcast_to(array, d))
    smallest = np.linalg.eigvalsh(matrix).min()
    if not smallest > 0 or not np.allclose(matrix, matrix.T):
        raise ValueError(
            f"{name} must be positive in every direction (and a matrix symmetric), but the "
            f"smallest is {smallest:g}"
        )
    return matrix.copy()
