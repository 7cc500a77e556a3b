"""Gaussian posteriors of K linear regressions, one per arm, kept as triangular square roots.

Arm k's parameters are N(mean, root rootᵀ), with an upper triangular root. An observation (x, y)
with noise variance r is absorbed by Carlson's rule, see `tsucb.numeric.carlson`: with v = rootᵀx,

    mean ← mean + root v (y − xᵀmean) / (r + vᵀv)
    root ← root · the triangular root of I − v vᵀ/(r + vᵀv)

A covariance that is updated by subtraction drifts and may lose its positive variances; root rootᵀ
cannot. And a triangle is half as much to read and to change as a square. The half below the
diagonal is stored too, as zeros, so that vector instructions can read rows of different lengths.

There are two layouts, chosen by the number of features. For few features, `Lanes` has the arm on
the last axis: one vector instruction works on several arms. For many features, `Rows` has the arm
on the first axis: one vector instruction works on several features, and features that are zero
are skipped, so a context with 20 of 136 features costs 20 rows.
"""

from typing import Any, Self

import numpy as np

from tsucb.compiler import compiled, hook, implements
from tsucb.compiler.vectors import (
    KEEP,
    PRODUCT,
    TAKE,
    TOGETHER,
    V,
    add_eight_squares,
    add_squares,
    add_thirty_two,
    add_thirty_two_squares,
    copy_eight,
    copy_roots,
    put_eight,
    put_products,
    put_sixteen,
)
from tsucb.models.state import Places, Sizes, State, array, counts
from tsucb.numeric.arrays import Floats, Integers, inner, weighted_rows
from tsucb.numeric.carlson import FEW, MOST_SHORT, absorb, set_factors

# Measured with 10 and with 60 arms: `Lanes` predicts faster up to 40 features, `Rows` learns faster
# from 20 on. `Rows` also skips zeros, and long contexts often have many.
MOST_LANE_FEATURES = 20


class Regressions(State):
    """The posteriors of K regressions, in either layout."""

    root: Floats
    mean: Floats
    pulls: Floats
    information: Floats

    @classmethod
    def blank(cls, sizes: Sizes) -> Self:
        """Return regressions without data, in the layout for this number of features."""
        if cls is not Regressions:
            return super().blank(sizes)
        layout: Any = Lanes if sizes["coefficient"] <= MOST_LANE_FEATURES else Rows
        blank: Self = layout.blank(sizes)
        return blank

    def widened(self, sizes: Sizes, places: Places) -> Self:
        """Return blank regressions of more features with the same pulls, for `Model.settle`."""
        kind: Any = Regressions if isinstance(self, Lanes) else type(self)
        wide: Self = kind.blank({"arm": self.pulls.size, **sizes})
        return wide._replace(pulls=self.pulls.copy())

    def check(self, rewards: int) -> None:
        """Raise ValueError also for roots that are not upper triangular."""
        super().check(rewards)
        if np.tril(self.by_arm()[1], -1).any():
            raise ValueError("root must be upper triangular")

    def by_arm(self) -> tuple[Floats, Floats]:
        """Return views of the means (K, d) and roots (K, d, d)."""
        return self.mean, self.root

    def set_posteriors(self, mean: Any, root: Any) -> None:
        """Set arm k's posterior to N(mean[k], root[k] root[k]ᵀ); the roots are upper triangular.

        Numbers below their diagonals, which come from rounding, are dropped.
        """
        means, roots = self.by_arm()
        means[:], roots[:] = mean, np.triu(root)

    def posterior(self, arm: Any) -> tuple[Floats, Floats]:
        """Return mean (d,) and square root (d, d) of one arm's posterior, as copies."""
        means, roots = self.by_arm()
        return means[arm].copy(), roots[arm].copy()

    def coefficients(self, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each of an arm's parameters."""
        mean, root = self.posterior(arm)
        return mean, np.sqrt((root**2).sum(axis=1))

    def merged(self, other: Any, base: Any) -> Self:
        """Return the posteriors after both histories since `base`: precisions add up."""
        result = super().merged(other, base)
        for arm in np.flatnonzero(other.pulls != base.pulls):
            parts = [natural(state, arm) for state in (self, other, base)]
            precision = parts[0][0] + parts[1][0] - parts[2][0]
            right = parts[0][1] + parts[1][1] - parts[2][1]
            lower = np.linalg.cholesky((precision + precision.T) / 2)
            upper = np.linalg.inv(lower).T
            means, roots = result.by_arm()
            means[arm], roots[arm] = upper @ (upper.T @ right), np.triu(upper)
            before = np.linalg.slogdet(parts[0][0])[1]
            more = 2 * np.log(np.diag(lower)).sum() - before
            result.information[arm] = max(self.information[arm] + more, 0.0)
        return result


class Lanes(Regressions):
    """Regressions with the arm last: root[i, j, k] is row i, column j of arm k's root."""

    root: Floats = array("coefficient", "coefficient", "arm")
    mean: Floats = array("coefficient", "arm")
    pulls: Floats = counts("arm")
    information: Floats = array("arm", least=0.0)

    def by_arm(self) -> tuple[Floats, Floats]:
        """Return views of the means (K, d) and roots (K, d, d)."""
        return self.mean.T, self.root.transpose(2, 0, 1)


class Rows(Regressions):
    """Regressions with the arm first: root[k, i, j] is row i, column j of arm k's root."""

    root: Floats = array("arm", "coefficient", "coefficient")
    mean: Floats = array("arm", "coefficient")
    pulls: Floats = counts("arm")
    information: Floats = array("arm", least=0.0)


class Shared(Rows):
    """A single regression, which all arms share, stored as arm 0."""

    root: Floats = array(1, "coefficient", "coefficient")
    mean: Floats = array(1, "coefficient")
    pulls: Floats = counts(1)
    information: Floats = array(1, least=0.0)


def triangular(root: Floats) -> Floats:
    """Return the upper triangular root of root rootᵀ; its diagonal is not negative."""
    if not np.tril(root, -1).any():
        return root
    # The QR decomposition of the reversed rows is the wanted root with both axes reversed.
    lower: Any = np.linalg.qr(root[::-1].T, mode="r")
    upper: Floats = lower.T[::-1, ::-1]
    return np.triu(upper * np.where(np.diag(upper) < 0, -1.0, 1.0))


def natural(state: Regressions, arm: Any) -> tuple[Floats, Floats, Floats]:
    """Return the precision of one arm's posterior, the precision times the mean, and the mean."""
    mean, root = state.posterior(arm)
    inverse = np.linalg.inv(root)
    precision = inverse.T @ inverse
    return precision, precision @ mean, mean


@hook
def predict(state: Any, context: Floats, arms: Integers) -> tuple[Floats, Floats]:
    """Return the arms' expected rewards at the context (n,), and their standard deviations (n,)."""


def predict_many(state: Regressions, contexts: Floats, arms: Integers) -> tuple[Floats, Floats]:
    """Return the moments (N, n) of the arms' expected rewards at many contexts (N, d).

    Each number of a root is read once for several contexts. BLAS would be slower for triangles, and
    wake threads.
    """
    (rows, features), count = contexts.shape, arms.size
    x = contexts if rows >= TOGETHER else np.resize(contexts, (TOGETHER, features))
    if isinstance(state, Rows) and features >= 8:
        mean, std = np.empty((2, len(x), count))
        predict_rows_many(state.root, state.mean, arms, x, mean, std)
    else:
        means, roots = state.by_arm()
        center, root = means.T, roots.transpose(1, 2, 0)
        if count < 8 or not np.array_equal(arms, np.arange(state.pulls.size)):
            lanes = np.resize(arms, max(count, 8))  # fewer than 8 arms are repeated
            center, root = center[:, lanes], root[..., lanes]
        mean, std = np.empty((2, len(x), max(count, 8)))
        center, root = np.ascontiguousarray(center), np.ascontiguousarray(root)
        predict_lanes_many(root, center, x, mean, std)
    return np.ascontiguousarray(mean[:rows, :count]), np.ascontiguousarray(std[:rows, :count])


# The functions below work on whole blocks of `TOGETHER` contexts and of eight arms or features; the
# last block overlaps with the one before.
@compiled
def predict_lanes_many(root, center, contexts, mean, std):  # type: ignore[no-untyped-def]
    """Write the moments (N, K) of all arms, at least 8, at contexts (N, d), at least `TOGETHER`."""
    features, _, count = root.shape
    rows, sums, squares = contexts.shape[0], np.empty((TOGETHER, 8)), np.empty((TOGETHER, 8))
    for block in range(0, rows, TOGETHER):
        first = min(block, rows - TOGETHER)
        for lane in range(0, count, 8):
            k = min(lane, count - 8)
            clear(squares, 0)
            x = first * features
            put_products(sums, 0, contexts, x, None, features, center, k, count)
            for j in range(features):
                where = j * count + k
                add_squares(squares, 0, contexts, x, None, j + 1, root, where, features * count)
            for r in range(TOGETHER):
                copy_eight(mean, (first + r) * count + k, sums, 8 * r)
                copy_roots(std, (first + r) * count + k, squares, 8 * r)


@compiled
def predict_rows_many(root, center, arms, contexts, mean, std):  # type: ignore[no-untyped-def]
    """Write the moments (N, n) of some arms at contexts (N, d), for `Rows` and d of at least 8."""
    features, rows, squares = contexts.shape[1], contexts.shape[0], np.empty((TOGETHER, 8))
    head = features % 8
    for a in range(arms.size):
        k = arms[a]
        begin = k * features * features
        for block in range(0, rows, TOGETHER):
            first = min(block, rows - TOGETHER)
            clear(squares, 0)
            x = first * features
            add_squares(squares, 0, contexts, x, None, head, root, begin, features)
            clear(squares, head)  # these columns belong to the next block
            for j in range(head, features, 8):
                add_squares(squares, 0, contexts, x, None, j + 8, root, begin + j, features)
            for r in range(TOGETHER):
                expected, variance = 0.0, 0.0
                for i in range(features):
                    expected += contexts[first + r, i] * center[k, i]
                for l in range(8):
                    variance += squares[r, l]
                mean[first + r, a], std[first + r, a] = expected, np.sqrt(variance)


@compiled
def clear(sums, first):  # type: ignore[no-untyped-def]
    """Set columns `first` to 7 to zero."""
    for r in range(sums.shape[0]):
        for l in range(first, 8):
            sums[r, l] = 0.0


@hook
def learn(
    state: Any, arm: int, context: Floats, reward: float, noise_variance: float
) -> tuple[float, float]:
    """Learn one observation; return the surprise y − xᵀmean and the spread xᵀΣx before it."""


@implements(predict, Lanes)
def predict_lanes(state, context, arms):  # type: ignore[no-untyped-def]
    features, _, count = state.root.shape
    root, center = state.root, state.mean
    mean, std = np.zeros(arms.size), np.zeros(arms.size)
    if features * count < 8 or not is_all(arms, count):
        for a in range(arms.size):
            k = arms[a]
            for j in range(features):
                mean[a] += context[j] * center[j, k]
                component = 0.0
                for i in range(j + 1):
                    component += context[i] * root[i, j, k]
                std[a] += component * component
    else:
        weighted_rows(context, center, mean)
        if count < 8:
            add_variances_of_few(root, context, std)
        else:
            add_variances(root, context, std)
    for a in range(arms.size):
        std[a] = np.sqrt(std[a])
    return mean, std


@compiled
def add_variances(root, context, out):  # type: ignore[no-untyped-def]
    """Add the variances of all arms, at least 8, at a context to `out`, which is zero."""
    features, _, count = root.shape
    down, rest = features * count, count - count % 32
    for k in range(0, rest, 32):
        for j in range(features):
            where = j * count + k
            add_thirty_two_squares(out, k, context, 0, None, j + 1, root, where, down)
    for block in range(rest, count, 8):
        k = min(block, count - 8)
        for l in range(8):
            out[k + l] = 0.0  # the last block may overlap with the one before
        for j in range(features):
            add_eight_squares(out, k, context, 0, None, j + 1, root, j * count + k, down)


@compiled
def add_variances_of_few(root, context, out):  # type: ignore[no-untyped-def]
    """Add the variances of all arms, fewer than 8, at a context to `out`, which is zero.

    Row i of all arms' roots is read as one row of d · K columns, of which there are at least 8.
    """
    features, _, count = root.shape
    columns = features * count
    v = np.empty(columns)
    for block in range(0, columns, 8):
        c = min(block, columns - 8)
        put_eight(v, c, context, 0, None, (c + 7) // count + 1, root, c, columns)
    for j in range(features):
        for k in range(count):
            out[k] += v[j * count + k] * v[j * count + k]


@implements(predict, Rows)
def predict_rows(state, context, arms):  # type: ignore[no-untyped-def]
    features = context.size
    root, center = state.root, state.mean
    mean, std, v = np.empty(arms.size), np.empty(arms.size), np.empty(features)
    values, rows, reach = nonzero(context)
    for a in range(arms.size):
        k = arms[a]
        if 8 <= features <= MOST_SHORT:
            transposed_product(root, k, values, rows, reach, v)
        else:
            long_transposed_product(root, k, values, rows, v)
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
    root, mean, room = state.root, state.mean, np.empty((5, features))
    surprise = reward
    for j in range(features):
        surprise -= context[j] * mean[j, arm]
        room[V, j] = 0.0
        for i in range(j + 1):
            room[V, j] += context[i] * root[i, j, arm]
    spread = set_factors(room, noise_variance)
    for j in range(features):
        keep, take, v = room[KEEP, j], room[TAKE, j], room[V, j]
        for i in range(j + 1):
            number = root[i, j, arm]
            root[i, j, arm] = number * keep - room[PRODUCT, i] * take
            room[PRODUCT, i] += number * v
    gain = surprise / (spread + noise_variance)
    for i in range(features):
        mean[i, arm] += room[PRODUCT, i] * gain
    state.pulls[arm] += 1
    state.information[arm] += np.log1p(spread / noise_variance)
    return surprise, spread


@implements(learn, Rows)
def learn_rows(state, arm, context, reward, noise_variance):  # type: ignore[no-untyped-def]
    features = context.size
    root, mean, room = state.root, state.mean, np.empty((5, features))
    values, rows, reach = nonzero(context)
    if 8 <= features <= MOST_SHORT:
        transposed_product(root, arm, values, rows, reach, room[V])
    else:
        long_transposed_product(root, arm, values, rows, room[V])
    surprise = reward
    for i in range(features):
        surprise -= context[i] * mean[arm, i]
    spread = set_factors(room, noise_variance)
    absorb(root, arm, room)
    gain = surprise / (spread + noise_variance)
    for i in range(features):
        mean[arm, i] += room[PRODUCT, i] * gain
    state.pulls[arm] += 1
    state.information[arm] += np.log1p(spread / noise_variance)
    return surprise, spread


@compiled
def evidence(state, arms):  # type: ignore[no-untyped-def]
    """Return pulls and information of the arms.

    For all arms these are the state's own arrays: copies would take a tenth of a step and more.
    """
    if is_all(arms, state.pulls.size):
        return state.pulls, state.information
    pulls, information = np.empty(arms.size), np.empty(arms.size)
    for a in range(arms.size):
        pulls[a], information[a] = state.pulls[arms[a]], state.information[arms[a]]
    return pulls, information


@compiled
def is_all(arms, count):  # type: ignore[no-untyped-def]
    """Return whether the arms are 0, 1, …, count − 1."""
    if arms.size != count:
        return False
    wrong = 0
    for a in range(count):
        wrong += arms[a] != a
    return wrong == 0


@compiled
def nonzero(context):  # type: ignore[no-untyped-def]
    """Return values and places of the features that are not zero.

    Also return for every feature how many of these there are up to it.
    """
    values, n = np.empty(context.size), 0
    rows, reach = np.empty(context.size, np.int64), np.empty(context.size, np.int64)
    for i in range(context.size):
        values[n], rows[n] = context[i], i
        n += context[i] != 0.0
        reach[i] = n
    return values[:n], rows[:n], reach


@compiled
def transposed_product(root, arm, values, rows, reach, v):  # type: ignore[no-untyped-def]
    """Set v = rootᵀx, for an arm's root and a context x with these `nonzero` features.

    For 8 to `MOST_SHORT` features; it cannot raise, so it is inlined and no references are counted.
    """
    features = v.size
    begin, head = arm * features * features, features % 16
    if head > 0:
        put_eight(v, 0, values, 0, rows, reach[7], root, begin, features)
        j = max(head - 8, 0)
        put_eight(v, j, values, 0, rows, reach[j + 7], root, begin + j, features)
    for j in range(head, features, 16):
        put_sixteen(v, j, values, 0, rows, reach[j + 7], root, begin + j, features)


@compiled
def long_transposed_product(root, arm, values, rows, v):  # type: ignore[no-untyped-def]
    """Set v = rootᵀx as `transposed_product` does, for any number of features.

    Reads `FEW` rows of the root at a time, from about the diagonal on.
    """
    features = v.size
    begin, head = arm * features * features, features % 32
    for j in range(features):
        v[j] = 0.0
    for n in range(0, rows.size, FEW):
        count, first = min(FEW, rows.size - n), rows[n]
        if first < head:
            for m in range(n, n + count):
                for j in range(head):
                    v[j] += values[m] * root[arm, rows[m], j]
        for j in range(max(head, first - (first - head) % 32), features, 32):
            add_thirty_two(v, j, values, n, rows, count, root, begin + j, features)


@compiled
def widen(regressions, arm, factor):  # type: ignore[no-untyped-def]
    """Multiply an arm's root by a factor, in place."""
    root = regressions.root
    for i in range(root.shape[1]):
        for j in range(i, root.shape[2]):
            root[arm, i, j] *= factor


@compiled
def observe_prior(regressions, part, weight, prior_root, prior_mean):  # type: ignore[no-untyped-def]
    """Replace a posterior N(μ, SSᵀ) by N(μ, SSᵀ)^γ · prior^(1−γ), in place; γ is the weight.

    S is widened to S/√γ, then the prior is learned as data. Its precision is Σᵢ rᵢrᵢᵀ with rᵢ the
    rows of its root's inverse, so its power 1−γ is worth d observations rᵢᵀβ = rᵢᵀμ₀ of variance
    1/(1−γ).
    """
    pulls, features = regressions.pulls[part] * weight, prior_mean.size
    widen(regressions, part, 1.0 / np.sqrt(weight))
    regressions.information[part] += features * np.log(weight)
    variance = 1.0 / (1.0 - weight)
    row = np.empty(features)
    for i in range(features):
        inverse_row(prior_root, i, row)
        learn(regressions, part, row, inner(row, prior_mean), variance)
    # Rounding must not turn an arm that is back at its prior into one that knows less.
    regressions.information[part] = max(0.0, regressions.information[part])
    regressions.pulls[part] = pulls


@compiled
def inverse_row(root, i, row):  # type: ignore[no-untyped-def]
    """Write row i of the inverse of a lower triangular root: solve rᵀ root = eᵢᵀ from its end."""
    row[:] = 0.0
    row[i] = 1.0 / root[i, i]
    for j in range(i - 1, -1, -1):
        total = 0.0
        for k in range(j + 1, i + 1):
            total += row[k] * root[k, j]
        row[j] = -total / root[j, j]
