"""Regressions that fade: posteriors in a basis in which they and the prior are both diagonal.

Relative to a prior N(μ₀, Σ₀), arm k's parameters are μ₀ + G b with G Gᵀ = Σ₀ and independent
bᵢ ~ N(qᵢ, tᵢ): tᵢ is the share of the prior's variance that is left in direction i, 1 before any
data. Replacing the posterior p by p^γ · prior^(1−γ) averages precisions, and precisions times
means, with those of the prior, so that it needs no matrix:

    tᵢ ← tᵢ / sᵢ,   qᵢ ← γ qᵢ / sᵢ,   sᵢ = γ + (1 − γ) tᵢ

An observation couples the bᵢ of its arm. Rotations make them independent again: Jacobi's method on
the rows of a root of their covariance, which keeps small variances accurate beside large ones. The
last basis nearly fits, so a few sweeps are enough.

Reference: Demmel and Veselić (1992), "Jacobi's method is more accurate than QR".
"""

from typing import Self

import numpy as np

from tsucb.compiler import compiled, implements
from tsucb.compiler.vectors import KEEP, TAKE, V
from tsucb.models.regressions import Regressions, learn, predict
from tsucb.models.state import State, array, counts
from tsucb.numeric.arrays import Floats
from tsucb.numeric.carlson import set_factors

PARALLEL = 1e-14  # cosine of the angle up to which two rows count as orthogonal
MOST_SWEEPS = 30  # two to five are usual
GREATEST_PRODUCT = 1e300
LEAST_SHARE = 1e-200  # of the prior's variance


class Spectral(State):
    """Posteriors of K regressions, all with the same prior."""

    center: Floats = array("coefficient")  # μ₀
    basis: Floats = array("arm", "coefficient", "coefficient")  # G
    mean: Floats = array("arm", "coefficient")  # q
    share: Floats = array("arm", "coefficient", start=1.0, least=LEAST_SHARE, most=1.0 + 1e-9)  # t
    pulls: Floats = counts("arm")
    information: Floats = array("arm", least=0.0)

    @classmethod
    def of(cls, fresh: Regressions) -> Self:
        """Return the `Spectral` state of regressions without data: they have the prior."""
        means, roots = fresh.by_arm()
        arms, size = means.shape
        blank = cls.blank({"arm": arms, "coefficient": size})
        blank.center[:], blank.basis[:] = means[0], roots
        return blank

    def joined(self, other: State) -> Self:
        """Return this state with the arms of another, or of blank regressions, behind its own."""
        return super().joined(Spectral.of(other) if isinstance(other, Regressions) else other)

    def coefficients(self, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each of an arm's parameters."""
        basis = self.basis[arm]
        return self.center + basis @ self.mean[arm], np.sqrt(basis**2 @ self.share[arm])


@implements(predict, Spectral)
def predict_spectral(state, context, arms):  # type: ignore[no-untyped-def]
    features = context.size
    mean, std, w = np.empty(arms.size), np.empty(arms.size), np.empty(features)
    center = 0.0
    for j in range(features):
        center += context[j] * state.center[j]
    for a in range(arms.size):
        k = arms[a]
        coordinates(state, k, context, w)
        expected, variance = center, 0.0
        for i in range(features):
            expected += w[i] * state.mean[k, i]
            variance += w[i] * w[i] * state.share[k, i]
        mean[a], std[a] = expected, np.sqrt(variance)
    return mean, std


@compiled
def coordinates(state, k, context, w):  # type: ignore[no-untyped-def]
    """Set w = Gᵀx for arm k: then xᵀ(μ₀ + G b) = xᵀμ₀ + wᵀb."""
    for i in range(w.size):
        w[i] = 0.0
    for j in range(w.size):
        x = context[j]
        for i in range(w.size):
            w[i] += x * state.basis[k, j, i]


@implements(learn, Spectral)
def learn_spectral(state, arm, context, reward, noise_variance):  # type: ignore[no-untyped-def]
    d = context.size
    w, room = np.empty(d), np.empty((5, d))
    coordinates(state, arm, context, w)
    surprise = reward
    for i in range(d):
        surprise -= context[i] * state.center[i] + w[i] * state.mean[arm, i]
        room[V, i] = w[i] * np.sqrt(state.share[arm, i])
    spread = set_factors(room, noise_variance)
    gain = surprise / (spread + noise_variance)
    # Row i: the root of the covariance of b by Carlson's rule, column i of G, and qᵢ.
    rows = np.zeros((d, 2 * d + 1))
    for i in range(d):
        deviation = np.sqrt(state.share[arm, i])
        rows[i, i] = deviation * room[KEEP, i]
        for j in range(i + 1, d):
            rows[i, j] = -deviation * room[V, i] * room[TAKE, j]
        for j in range(d):
            rows[i, d + j] = state.basis[arm, j, i]
        rows[i, 2 * d] = state.mean[arm, i] + gain * deviation * room[V, i]
    share = orthogonalise(rows)
    information = 0.0
    for i in range(d):
        state.share[arm, i] = max(min(share[i], 1.0), LEAST_SHARE)
        information -= np.log(state.share[arm, i])
        state.mean[arm, i] = rows[i, 2 * d]
        for j in range(d):
            state.basis[arm, j, i] = rows[i, d + j]
    state.information[arm] = information
    state.pulls[arm] += 1
    return surprise, spread


@compiled
def orthogonalise(rows):  # type: ignore[no-untyped-def]
    """Rotate the rows (d, ≥ d) until their first d columns are orthogonal, in place.

    Return the squared lengths of the rows in these columns.
    """
    d, width = rows.shape
    squares = np.zeros(d)
    for _ in range(MOST_SWEEPS):
        for i in range(d):
            squares[i] = 0.0
            for l in range(d):
                squares[i] += rows[i, l] * rows[i, l]
        rotated = False
        for i in range(d - 1):
            for j in range(i + 1, d):
                product = 0.0
                for l in range(d):
                    product += rows[i, l] * rows[j, l]
                if abs(product) <= PARALLEL * np.sqrt(squares[i] * squares[j]):
                    continue
                rotated = True
                # The smaller angle that makes the two rows orthogonal.
                ratio = (squares[j] - squares[i]) / (2.0 * product)
                tangent = 1.0 / (abs(ratio) + np.sqrt(1.0 + ratio * ratio))
                if ratio < 0.0:
                    tangent = -tangent
                cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
                sine = cosine * tangent
                for l in range(width):
                    first, second = rows[i, l], rows[j, l]
                    rows[i, l] = cosine * first - sine * second
                    rows[j, l] = sine * first + cosine * second
                squares[i] -= tangent * product
                squares[j] += tangent * product
        if not rotated:
            break
    return squares


@compiled
def fade(state, arm, weight):  # type: ignore[no-untyped-def]
    """Replace an arm's posterior p by p^γ · prior^(1−γ), in place; γ is the weight.

    Return the squared distance of its mean from the prior's, Σ qᵢ² / (tᵢ/γ + 1/(1−γ)).
    """
    share, mean = state.share[arm], state.mean[arm]
    distance, product = 0.0, 1.0
    for i in range(share.size):
        scale = 1.0 / (weight + (1.0 - weight) * share[i])
        distance += mean[i] * mean[i] * scale
        product *= scale
        share[i] *= scale
        mean[i] *= weight * scale
    if product < GREATEST_PRODUCT:  # one logarithm is enough
        state.information[arm] = max(state.information[arm] - np.log(product), 0.0)
    else:
        state.information[arm] = -np.log(share).sum()
    state.pulls[arm] *= weight
    return weight * (1.0 - weight) * distance
