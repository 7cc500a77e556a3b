"""Gaussian posteriors of K linear regressions, one per arm, kept as square roots.

Arm k's parameters are N(mean, root rootᵀ). An observation (x, y) with noise variance r is
absorbed by Potter's rule, with v = rootᵀx and s = vᵀv the spread at x:

    mean ← mean + root v (y − xᵀmean) / (s + r)
    root ← root − (root v) vᵀ / (s + r + √(r (s + r)))

A covariance updated by subtraction drifts and may lose its positive variances; root rootᵀ cannot.

Two layouts, chosen by the number of features. For few, `Lanes` puts the arm on the last axis:
one vector instruction then serves several arms. For many, `Rows` keeps each arm's matrix together:
one vector instruction serves several features, and features that are zero are skipped, so a
context with 20 of 136 features costs 20 rows.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg.blas import dtrmm

from tsucb.checks import LARGEST, within
from tsucb.compiled import hook, implements, inlined
from tsucb.numeric.arrays import Floats, Integers, inner, taken

# Up to 40 features, with 10 and with 60 arms, lanes were the faster at predicting and rows, from 20
# features on, at learning; rows also skip zeros, of which long contexts often have many.
MOST_LANE_FEATURES = 20
HALVED = 2  # times as many contexts as features: then a root is worth making triangular
MOST_PRODUCTS = 2**16  # of many contexts at a time: half a megabyte
MOST_COMPONENTS = 1000  # of v at a time: 8 kB
MOST_COEFFICIENT = LARGEST**2  # a mean's: the largest reward, over the least feature that tells


class Lanes(NamedTuple):
    """The arm last: root[i, j, k] is row i, column j of arm k's root; mean[i, k]."""

    root: Floats
    mean: Floats
    pulls: Integers
    information: Floats


class Rows(NamedTuple):
    """The arm first: root[k, i, j] is row i, column j of arm k's root; mean[k, i]."""

    root: Floats
    mean: Floats
    pulls: Integers
    information: Floats


Regressions: TypeAlias = Lanes | Rows


def start(arms: int, mean: Floats, root: Floats) -> Regressions:
    """K regressions that have seen nothing: every arm has the same prior N(mean, root rootᵀ)."""
    pulls, information = np.zeros(arms, dtype=np.int64), np.zeros(arms)
    if mean.size <= MOST_LANE_FEATURES:
        lanes = np.repeat(root[:, :, None], arms, axis=2)
        return Lanes(lanes, np.repeat(mean[:, None], arms, axis=1), pulls, information)
    return Rows(np.tile(root, (arms, 1, 1)), np.tile(mean, (arms, 1)), pulls, information)


def concatenate(first: Regressions, second: Regressions) -> Regressions:
    """The arms of the first, then those of the second."""
    axis = -1 if isinstance(first, Lanes) else 0
    root, mean = (
        np.concatenate(pair, axis=axis)
        for pair in ((first.root, second.root), (first.mean, second.mean))
    )
    pulls = np.concatenate((first.pulls, second.pulls))
    information = np.concatenate((first.information, second.information))
    return type(first)(np.ascontiguousarray(root), np.ascontiguousarray(mean), pulls, information)


def arm_posterior(state: Regressions, arm: int) -> tuple[Floats, Floats]:
    """Mean (d,) and square root (d, d) of one arm's posterior, as copies."""
    if isinstance(state, Lanes):
        return state.mean[:, arm].copy(), state.root[:, :, arm].copy()
    return state.mean[arm].copy(), state.root[arm].copy()


def coefficients(state: Regressions, arm: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of one arm's every parameter."""
    mean, root = arm_posterior(state, arm)
    return mean, np.sqrt((root**2).sum(axis=1))


def check(state: Regressions, rewards: int, prior_root: Floats) -> None:
    """Raise a ValueError for posteriors that data cannot have led to from this prior."""
    if (state.pulls < 0).any() or (state.pulls > rewards).any():
        raise ValueError("counts of pulls that cannot be")
    if (state.information < 0).any() or (state.information > 1e9).any():
        raise ValueError("information that cannot be")
    axes = (0, 1) if isinstance(state, Lanes) else (1, 2)
    # Data only ever lowers the total variance.
    with np.errstate(over="ignore"):
        spread, most = (state.root**2).sum(axis=axes), (prior_root**2).sum()
    if not (spread <= 1.001 * most).all() or not within(state.mean, MOST_COEFFICIENT):
        raise ValueError("a posterior wider than its prior, or too far from it")


def merged(first: Regressions, second: Regressions, base: Regressions) -> Regressions:
    """Posteriors of what two have learned since they were one: precisions add up."""
    result: Regressions = type(first)._make(array.copy() for array in first)
    result.pulls[:] = first.pulls + second.pulls - base.pulls
    for arm in range(first.pulls.size):
        if second.pulls[arm] == base.pulls[arm]:
            continue
        parts = [natural(*arm_posterior(state, arm)) for state in (first, second, base)]
        precision = parts[0][0] + parts[1][0] - parts[2][0]
        right = parts[0][1] + parts[1][1] - parts[2][1]
        lower = np.linalg.cholesky((precision + precision.T) / 2)
        root = np.linalg.inv(lower).T
        set_arm_posterior(result, arm, root @ (root.T @ right), root)
        before = np.linalg.slogdet(parts[0][0])[1]
        more = 2 * np.log(np.diag(lower)).sum() - before
        result.information[arm] = max(first.information[arm] + more, 0.0)
    return result


def natural(mean: Floats, root: Floats) -> tuple[Floats, Floats]:
    """Precision, and precision times mean, of N(mean, root rootᵀ)."""
    inverse = np.linalg.inv(root)
    precision = inverse.T @ inverse
    return precision, precision @ mean


def set_arm_posterior(state: Regressions, arm: int, mean: Floats, root: Floats) -> None:
    """Replace one arm's posterior by N(mean, root rootᵀ)."""
    if isinstance(state, Lanes):
        state.mean[:, arm], state.root[:, :, arm] = mean, root
    else:
        state.mean[arm], state.root[arm] = mean, root


def set_posteriors(state: Regressions, mean: Floats, root: Floats) -> None:
    """Replace all posteriors: arm k's by N(mean[k], root[k] root[k]ᵀ)."""
    if isinstance(state, Lanes):
        state.mean[:], state.root[:] = mean.T, root.transpose(1, 2, 0)
    else:
        state.mean[:], state.root[:] = mean, root


@hook
def predict(state: Any, context: Floats, arms: Integers) -> tuple[Floats, Floats]:
    """The given arms' expected rewards at the context, and their standard deviations."""


def predict_many(state: Regressions, contexts: Floats, arms: Integers) -> tuple[Floats, Floats]:
    """`predict` at many contexts: one product of matrices per arm, or for all arms at once."""
    rows, d = contexts.shape
    mean, std = np.empty((rows, arms.size)), np.empty((rows, arms.size))
    if isinstance(state, Lanes):
        whole = np.array_equal(arms, np.arange(state.pulls.size))
        root = state.root if whole else np.ascontiguousarray(state.root[:, :, arms])
        np.dot(contexts, state.mean if whole else state.mean[:, arms], out=mean)
        wide = root.reshape(d, -1)
        piece = max(MOST_PRODUCTS // wide.shape[1], 8)
        for first in range(0, rows, piece):
            v = contexts[first : first + piece] @ wide
            np.square(v, out=v)
            np.sum(v.reshape(-1, d, arms.size), axis=1, out=std[first : first + piece])
        return mean, np.sqrt(std, out=std)
    np.dot(contexts, state.mean[arms].T, out=mean)
    halved = rows > HALVED * d
    piece = max(MOST_PRODUCTS // d, 8)
    for a, k in enumerate(arms.tolist()):
        root = state.root[k]
        if halved:  # a triangular root of the same covariance: half the work for every context
            upper: Any = np.linalg.qr(root.T, mode="r")
            root = upper.T
        for first in range(0, rows, piece):
            x = contexts[first : first + piece]
            v = dtrmm(1.0, root.T, x.T, side=0).T if halved else x @ root
            np.einsum("ij,ij->i", v, v, out=std[first : first + piece, a])
    return mean, np.sqrt(std, out=std)


@hook
def learn(
    state: Any, arm: int, context: Floats, reward: float, noise_variance: float
) -> tuple[float, float]:
    """Absorb one observation; return the surprise y − xᵀmean and the spread xᵀΣx before it."""


@hook
def widen(regressions: Any, part: int, factor: float) -> None:
    """Multiply one arm's root by a factor."""


@hook
def set_spread(regressions: Any, arm: int, feature: int, std: float) -> None:
    """Give a coefficient about which nothing is known its standard deviation."""


@implements(set_spread, Lanes)
def set_spread_lanes(regressions, arm, feature, std):  # type: ignore[no-untyped-def]
    regressions.root[feature, feature, arm] = std


@implements(set_spread, Rows)
def set_spread_rows(regressions, arm, feature, std):  # type: ignore[no-untyped-def]
    regressions.root[arm, feature, feature] = std


@implements(predict, Lanes)
def predict_lanes(state, context, arms):  # type: ignore[no-untyped-def]
    features, _, count = state.root.shape
    mean, std = np.zeros(arms.size), np.zeros(arms.size)
    root, center = state.root, state.mean
    if not everyone(arms, count):
        for a in range(arms.size):
            k = arms[a]
            variance = 0.0
            for j in range(features):
                mean[a] += context[j] * center[j, k]
                component = 0.0
                for i in range(features):
                    component += context[i] * root[i, j, k]
                variance += component * component
            std[a] = np.sqrt(variance)
        return mean, std
    for i in range(features):
        x = context[i]
        for k in range(count):
            mean[k] += x * center[i, k]
    # v = rootᵀ context of all arms, a few columns at a time: loops over several columns are long
    # even for few arms, yet v stays in the fastest cache.
    columns = min(features, max(1, MOST_COMPONENTS // count))
    v, flat, wide = np.empty(columns * count), root.reshape(root.size), features * count
    for first in range(0, features, columns):
        columns = min(columns, features - first)
        size = columns * count
        for c in range(size):
            v[c] = 0.0
        # Two rows at a time: half the traffic through v.
        for i in range(0, features - 1, 2):
            x, y = context[i], context[i + 1]
            here, there = i * wide + first * count, (i + 1) * wide + first * count
            row, next_row = flat[here : here + size], flat[there : there + size]
            for c in range(size):
                v[c] += x * row[c] + y * next_row[c]
        if features % 2 == 1:
            x, here = context[features - 1], (features - 1) * wide + first * count
            row = flat[here : here + size]
            for c in range(size):
                v[c] += x * row[c]
        for j in range(columns):
            column = v[j * count : (j + 1) * count]
            for k in range(count):
                std[k] += column[k] * column[k]
    for k in range(count):
        std[k] = np.sqrt(std[k])
    return mean, std


@implements(predict, Rows)
def predict_rows(state, context, arms):  # type: ignore[no-untyped-def]
    features = context.size
    root, center = state.root, state.mean
    mean, std, v = np.empty(arms.size), np.empty(arms.size), np.empty(features)
    used = np.flatnonzero(context)
    for a in range(arms.size):
        k = arms[a]
        _transposed_product(root, k, context, used, v)
        expected = 0.0
        variance = 0.0
        for i in range(features):
            expected += context[i] * center[k, i]
            variance += v[i] * v[i]
        mean[a] = expected
        std[a] = np.sqrt(variance)
    return mean, std


@implements(learn, Lanes)
def learn_lanes(state, arm, context, reward, noise_variance):  # type: ignore[no-untyped-def]
    features = context.size
    root, mean = state.root, state.mean
    v, e = np.zeros(features), np.zeros(features)
    surprise = reward
    for j in range(features):
        surprise -= context[j] * mean[j, arm]
        component = 0.0
        for i in range(features):
            component += context[i] * root[i, j, arm]
        v[j] = component
    spread, shrink = _shrinkage(v, noise_variance)
    for j in range(features):
        for i in range(features):
            e[i] += root[i, j, arm] * v[j]
    for j in range(features):
        mean[j, arm] += e[j] * surprise / (spread + noise_variance)
        step = shrink * v[j]
        for i in range(features):
            root[i, j, arm] -= step * e[i]
    state.pulls[arm] += 1
    state.information[arm] += np.log1p(spread / noise_variance)
    return surprise, spread


@implements(learn, Rows)
def learn_rows(state, arm, context, reward, noise_variance):  # type: ignore[no-untyped-def]
    features = context.size
    root, mean = state.root[arm], state.mean[arm]
    v = np.empty(features)
    _transposed_product(state.root, arm, context, np.flatnonzero(context), v)
    surprise = reward
    for i in range(features):
        surprise -= context[i] * mean[i]
    spread, shrink = _shrinkage(v, noise_variance)
    for i in range(features):
        row = root[i]
        e = 0.0
        for j in range(features):
            e += row[j] * v[j]
        mean[i] += e * surprise / (spread + noise_variance)
        step = shrink * e
        for j in range(features):
            row[j] -= step * v[j]
    state.pulls[arm] += 1
    state.information[arm] += np.log1p(spread / noise_variance)
    return surprise, spread


@inlined
def evidence(state, arms):  # type: ignore[no-untyped-def]
    """Pulls and information of the given arms; the state's own arrays where it is all of them."""
    if everyone(arms, state.pulls.size):
        return state.pulls, state.information
    return taken(state.pulls, arms), taken(state.information, arms)


@inlined
def everyone(arms, count):  # type: ignore[no-untyped-def]
    """Whether the arms are 0, 1, …, count − 1."""
    if arms.size != count:
        return False
    wrong = 0
    for a in range(count):
        wrong += arms[a] != a
    return wrong == 0


@inlined
def _transposed_product(root, arm, context, used, v):  # type: ignore[no-untyped-def]
    """v = root[arm]ᵀ context, over the features that are not zero."""
    for j in range(v.size):
        v[j] = 0.0
    # Indices instead of views, which cost two updates of a reference count each; two rows at a
    # time: half the traffic through v.
    for n in range(0, used.size - 1, 2):
        i, next_i = used[n], used[n + 1]
        x, y = context[i], context[next_i]
        for j in range(v.size):
            v[j] += x * root[arm, i, j] + y * root[arm, next_i, j]
    if used.size % 2 == 1:
        i = used[-1]
        for j in range(v.size):
            v[j] += context[i] * root[arm, i, j]


@inlined
def _shrinkage(v, noise_variance):  # type: ignore[no-untyped-def]
    """The spread vᵀv, and the factor of (root v) vᵀ in Potter's rule."""
    spread = 0.0
    for j in range(v.size):
        spread += v[j] * v[j]
    total = spread + noise_variance
    return spread, 1.0 / (total + np.sqrt(noise_variance * total))


@implements(widen, Lanes)
def widen_lanes(regressions, part, factor):  # type: ignore[no-untyped-def]
    root = regressions.root
    for j in range(root.shape[0]):
        for i in range(root.shape[1]):
            root[j, i, part] *= factor


@implements(widen, Rows)
def widen_rows(regressions, part, factor):  # type: ignore[no-untyped-def]
    root = regressions.root
    for i in range(root.shape[1]):
        for j in range(root.shape[2]):
            root[part, i, j] *= factor


@inlined
def observe_prior(regressions, part, weight, prior_root, prior_mean):  # type: ignore[no-untyped-def]
    """N(μ, SSᵀ) ← N(μ, SSᵀ)^γ · prior^(1−γ): widen S to S/√γ, then observe the prior.

    The prior's precision is Σᵢ rᵢrᵢᵀ with rᵢ the rows of its root's inverse, so its power 1−γ is
    worth d observations rᵢᵀβ = rᵢᵀμ₀ of variance 1/(1−γ). Returns how surprising they were, in
    their standard deviations, squared and summed.
    """
    pulls, features = regressions.pulls[part] * weight, prior_mean.size
    widen(regressions, part, 1.0 / np.sqrt(weight))
    regressions.information[part] += features * np.log(weight)
    variance = 1.0 / (1.0 - weight)
    distance = 0.0
    row = np.empty(features)
    for i in range(features):
        inverse_row(prior_root, i, row)
        target = inner(row, prior_mean)
        surprise, spread = learn(regressions, part, row, target, variance)
        distance += surprise * surprise / (spread + variance)
    # Rounding must not turn an arm that is back at its prior into one that knows less.
    regressions.information[part] = max(0.0, regressions.information[part])
    regressions.pulls[part] = pulls
    return distance


@inlined
def inverse_row(root, i, row):  # type: ignore[no-untyped-def]
    """Row i of the inverse of a lower triangular root: rᵀ root = eᵢᵀ, solved from its end."""
    row[:] = 0.0
    row[i] = 1.0 / root[i, i]
    for j in range(i - 1, -1, -1):
        total = 0.0
        for k in range(j + 1, i + 1):
            total += row[k] * root[k, j]
        row[j] = -total / root[j, j]
