"""Sets of arms: answers against brute force and SciPy, regret against finitely many arms."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize, minimize_scalar

import tsucb
from tsucb import simulate
from tsucb.numeric.eigen import symmetric_eigen
from tsucb.sets import (
    Ball,
    Box,
    Ellipsoid,
    Polynomial,
    Polytope,
    SetAgent,
    SetBandit,
    Spline,
)
from tsucb.sets.arm_set import least_ratio, optimistic, support
from tsucb.sets.box import best_corner, climb

CLOSE = 1e-9
TETRAHEDRON = np.array([[1.0, 0.2, 0], [0.1, 1.5, 0.3], [-0.5, -0.5, 1], [-0.2, 0.3, -1.2]])


def problem(d, seed):
    """Return an estimate and a root of its uncertainty, with variances from 1 to 1e-4."""
    rng = np.random.default_rng((seed, d))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    scales = np.geomspace(1, 0.01, d)
    return rng.normal(size=d) * rng.choice([0.1, 1.0]), turn * scales @ turn.T


def points_of(arms, count, rng):
    """Return random arms, half of them on the boundary or at corners, where best arms are."""
    d = arms.dimension
    if isinstance(arms, Ball | Ellipsoid):
        axes = arms.radius * np.eye(d) if isinstance(arms, Ball) else arms.axes
        u = rng.normal(size=(count, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        u[count // 2 :] *= rng.random((count - count // 2, 1)) ** (1 / d)
        return u @ axes.T
    if isinstance(arms, Box):
        inside = rng.uniform(arms.low, arms.high, size=(count, d))
        return np.vstack([inside, list(itertools.product(*zip(arms.low, arms.high, strict=True)))])
    weights = rng.dirichlet(np.full(len(arms.vertices), 0.5), size=count)
    return np.vstack([weights @ arms.vertices, arms.vertices])


def feasible(arms):
    """Return the set for SciPy."""
    if isinstance(arms, Ball | Ellipsoid):
        axes = arms.radius * np.eye(arms.dimension) if isinstance(arms, Ball) else arms.axes
        inverse = np.linalg.inv(axes)
        return None, [{"type": "ineq", "fun": lambda a: 1 - ((inverse @ a) ** 2).sum()}]
    if isinstance(arms, Box):
        return list(zip(arms.low, arms.high, strict=True)), []
    from scipy.spatial import ConvexHull

    hull = ConvexHull(arms.vertices).equations
    return None, [LinearConstraint(hull[:, :-1], ub=-hull[:, -1])]


def polished(objective, points, values, arms):
    """Return the largest value among the points, and after SciPy has improved the best two."""
    best = values.max()
    bounds, constraints = feasible(arms)
    for start in points[np.argpartition(values, -2)[-2:]]:
        found = minimize(
            lambda a: -float(objective(a)),
            start,
            method="SLSQP",
            bounds=bounds,
            constraints=constraints,
            options={"ftol": 1e-15, "maxiter": 200},
        )
        if inside(arms, found.x, 1e-13) and math.isfinite(found.fun):
            best = max(best, -found.fun)
    return best


def quotient(over, under):
    """Return the quotient; −∞ where it is 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.divide(over, under)
    return np.where(np.isnan(found), -np.inf, found)


def round_shape(d):
    turn = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    return turn * np.linspace(0.3, 2, d) @ turn.T


SETS = [
    *(Ball(d) for d in (1, 2, 3, 4)),
    Ball(3, radius=2.5),
    *(Ellipsoid(round_shape(d)) for d in (2, 4)),
    Box([-1, -1], [1, 1]),
    Box([0.5, -1, 0.2, 0], [2, 1, 0.3, 1]),  # away from the origin
    Polytope([[1, 0], [0, 1], [2, 2], [1.2, 1.1]]),
    Polytope(TETRAHEDRON),
]
ids = [f"{type(arms).__name__}-{arms.dimension}" for arms in SETS]


@pytest.mark.parametrize("arms", SETS, ids=ids)
def test_arms_are_the_best_of_a_million(arms):
    """None of 10⁶ arms is better by 1e-9, nor the best ones after SciPy has improved them."""
    rng = np.random.default_rng(1)
    million = points_of(arms, 1_000_000, rng)
    few = million[:: max(1, len(million) // 20_000)]
    point = np.empty(arms.dimension)
    for seed in range(5):
        mean, root = problem(arms.dimension, seed)
        points = million if seed == 0 else few
        highest = support(arms, mean, point)
        assert highest == pytest.approx(mean @ point, rel=1e-12)
        heights, widths = points @ mean, np.linalg.norm(points @ root, axis=1)
        assert heights.max() <= highest + CLOSE
        for alpha in (0.0, 0.3, 20.0):
            value = optimistic(arms, mean, root, alpha, point)
            assert value == pytest.approx(mean @ point + alpha * np.linalg.norm(root.T @ point))

            def bound(a, alpha=alpha, mean=mean, root=root):
                return a @ mean + alpha * np.linalg.norm(a @ root)

            best = polished(bound, points, heights + alpha * widths, arms)
            assert best <= value + CLOSE * max(1, abs(value))
            assert value <= best + 0.05 * (1 + alpha)  # and not above what is possible
        least = (million[:10_000] @ mean).min()
        for f in (highest + 1.0, highest + 0.01, highest, 0.5 * (highest + max(least, 0.0))):
            if f <= 0 and isinstance(arms, Ball | Ellipsoid):
                continue
            value = least_ratio(arms, mean, root, f, point)
            assert value == pytest.approx(
                (f - mean @ point) / np.linalg.norm(root.T @ point), rel=1e-9, abs=1e-12
            )

            def ratio(a, f=f, mean=mean, root=root):
                return quotient(a @ mean - f, np.linalg.norm(a @ root))

            best = -polished(ratio, points, quotient(heights - f, widths), arms)
            assert value <= best + CLOSE * max(1, abs(best))
            assert inside(arms, point)


@pytest.mark.parametrize("arms", [Polytope([[1, 2], [-2, 0.5], [0.3, -1]]), Box([-1, -1], [1, 1])])
def test_what_is_certain_and_pays_more_than_f_comes_first(arms):
    """The origin pays 0 for sure: with f below 0, no arm has a smaller ratio."""
    point = np.empty(2)
    for seed in range(5):
        mean, root = problem(2, seed)
        assert least_ratio(arms, mean, root, -0.2, point) < -1e12
        assert np.abs(point).max() < 1e-12


def inside(arms, point, slack=1e-9):
    """Return whether the point is in SciPy's description of the set, up to rounding."""
    bounds, constraints = feasible(arms)
    if bounds is not None:
        low, high = np.array(bounds).T
        return bool(((low - slack <= point) & (point <= high + slack)).all())
    [one] = constraints
    if isinstance(one, dict):
        return one["fun"](point) >= -slack
    return bool((one.A @ point <= one.ub + slack).all())


def test_ties_and_hard_cases_on_the_ball():
    """An estimate of zero, or of zero along the widest axes."""
    point = np.empty(4)
    assert optimistic(Ball(4), np.zeros(4), 0.5 * np.eye(4), 3.0, point) == pytest.approx(1.5)
    assert np.linalg.norm(point) == pytest.approx(1)
    assert least_ratio(Ball(4), np.zeros(4), 0.5 * np.eye(4), 3.0, point) == pytest.approx(6)
    root = np.diag([0.5, 1.0, 1.0, 0.1])
    for own in (0.0, 1e-300, 1e-17, 1e-9):
        mean = np.array([0.5, own, 0.0, 0.0])
        # a = (c, s, 0, 0): the largest of c/2 + √(c²/4 + s²) is at c = 1/√3
        assert optimistic(Ball(4), mean, root, 1.0, point) == pytest.approx(2 / math.sqrt(3))
        assert np.abs(point[[0, 3]]) == pytest.approx([1 / math.sqrt(3), 0], abs=1e-8)
        assert least_ratio(Ball(4), mean, root, 2 / math.sqrt(3), point) == pytest.approx(1)
    # Almost certain in most directions, as after 10¹⁶ rewards.
    sharp = np.diag([1.0, 1e-8, 1e-8, 1e-8])
    mean = np.array([0.0, 1.0, 0.0, 0.0])
    for f in (0.5, 1.0, 1.000001, 2.0):
        value = least_ratio(Ball(4), mean, sharp, f, point)
        angles = np.linspace(0, math.pi, 1_000_001)
        widths = np.hypot(np.sin(angles), 1e-8 * np.cos(angles))
        assert value <= ((f - np.cos(angles)) / widths).min() + CLOSE * abs(value)


def test_the_smallest_ratio_is_where_the_largest_bound_reaches_f():
    """At scales from 1 to 1e-9, with estimates that are almost blind along some axes."""
    rng, point = np.random.default_rng(0), np.empty(5)
    for n in range(2000):
        turn = np.linalg.qr(rng.normal(size=(5, 5)))[0] if n % 2 else np.eye(5)
        scales = 10.0 ** rng.uniform(-8, 0, 5)
        if n % 3 == 0:
            scales[:2] = scales.max()
        root = turn * scales @ turn.T
        mean = turn @ (rng.normal(size=5) * 10.0 ** rng.uniform(-20, 0, 5) * (rng.random(5) < 0.8))
        alpha = 10.0 ** rng.uniform(-3, 3)
        bound = optimistic(Ball(5), mean, root, alpha, point)
        ratio = least_ratio(Ball(5), mean, root, bound, point)
        assert abs(ratio - alpha) * np.linalg.norm(root.T @ point) < 1e-13 * bound


@pytest.mark.parametrize("arms", [Polynomial(2, 7, 4), Spline(-1, 3, 5)], ids=["poly", "spline"])
def test_points_on_curves_are_the_best_of_a_million(arms):
    fine = np.linspace(arms.low, arms.high, 1_000_001)
    rows = reference_features(arms, fine)
    point = np.empty(1)
    for seed in range(10):
        mean, root = problem(arms.dimension, seed)
        expected, width = rows @ mean, np.linalg.norm(rows @ root, axis=1)

        f = expected.max()
        assert -1e-12 <= support(arms, mean, point) - f <= 1e-9
        assert reference_features(arms, point)[0] @ mean == pytest.approx(f)
        for alpha in (0.5, 5.0):
            value = optimistic(arms, mean, root, alpha, point)
            heights = expected + alpha * width
            assert -1e-12 <= value - heights.max() <= 1e-9 * (1 + abs(value))
        for target in (f + 1.0, f, f - 0.3):
            value = least_ratio(arms, mean, root, target, point)
            ratios = (target - expected) / width
            assert -1e-9 * (1 + abs(value)) <= ratios.min() - value <= 1e-7 * (1 + abs(value))


def reference_features(arms, x):
    """Return the same features by NumPy and SciPy."""
    if isinstance(arms, Polynomial):
        z = 2 * (x - arms.low) / (arms.high - arms.low) - 1
        return np.polynomial.legendre.legvander(z, arms.degree)
    from scipy.interpolate import BSpline

    h = (arms.high - arms.low) / arms.pieces
    knots = arms.low + h * np.arange(-3, arms.pieces + 4)
    return BSpline.design_matrix(np.clip(x, arms.low, arms.high), knots, 3).toarray()


@pytest.mark.parametrize("arms", [Polynomial(2, 7, 4), Spline(-1, 3, 5)], ids=["poly", "spline"])
def test_features_and_priors_of_curves(arms):
    x = np.linspace(arms.low, arms.high, 57)
    rows = reference_features(arms, x)
    assert arms.features_of(x) == pytest.approx(rows, abs=1e-12)
    model = arms.model(noise=0.3, level=5.0, spread=2.0)
    assert rows @ model.prior_mean == pytest.approx(np.full(57, 5.0))
    stds = np.linalg.norm(rows @ model.prior_root, axis=1)
    assert np.sqrt((stds**2).mean()) == pytest.approx(2.0, rel=0.05)


def test_eigenvalues_against_numpy():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 20):
        factor = rng.normal(size=(n, n)) * np.geomspace(1, 1e-6, n)
        matrix = factor @ factor.T
        values, vectors = symmetric_eigen(matrix)
        assert np.sort(values) == pytest.approx(
            np.linalg.eigvalsh(matrix), abs=1e-13 * n * values.max()
        )
        assert vectors @ vectors.T == pytest.approx(np.eye(n), abs=1e-13 * n)
        assert vectors * values @ vectors.T == pytest.approx(matrix, abs=1e-13 * n * values.max())
    for matrix in (np.zeros((3, 3)), np.eye(4), np.ones((3, 3)), np.diag([2.0, 0, 2])):
        values, vectors = symmetric_eigen(matrix)
        assert vectors * values @ vectors.T == pytest.approx(matrix, abs=1e-14)


def test_a_cube_is_a_cube_however_it_is_given():
    box = Box([-1, 0, 2], [1, 0.5, 4])
    matrix = np.vstack([np.eye(3), -np.eye(3), [[1, 1, 1]]])  # the last is idle
    cube = Polytope.from_inequalities(matrix, [1, 0.5, 4, 1, 0, -2, 100])
    assert len(cube.vertices) == 8
    first, second = np.empty((2, 3))
    for seed in range(20):
        mean, root = problem(3, seed)
        for alpha in (0.2, 3.0):
            one = optimistic(box, mean, root, alpha, first)
            assert one == pytest.approx(optimistic(cube, mean, root, alpha, second))
        for f in (support(box, mean, first) + 0.5, support(box, mean, first) - 0.5):
            one = least_ratio(box, mean, root, f, first)
            assert one == pytest.approx(least_ratio(cube, mean, root, f, second))
            assert first == pytest.approx(second, abs=1e-6)
    interval = Polytope.from_inequalities([[2.0], [-1.0], [1.0]], [3.0, 1.0, 9.0])
    assert sorted(interval.vertices.ravel()) == [-1.0, 1.5]


def test_beyond_sixteen_features_a_box_is_climbed():
    """No change of one entry improves the corner; with twelve features it is the best one."""
    found = 0
    for seed in range(30):
        arms = Box(np.full(12, -1.0), np.ones(12))
        mean, root = problem(12, seed)
        point, other = np.empty((2, 12))
        best, reached = (
            best_corner(arms, mean, root, 2.0, point),
            climb(arms, mean, root, 2.0, other),
        )
        assert reached <= best + CLOSE
        found += reached >= best - CLOSE
    assert found == 30
    wide = Box(np.full(40, -1.0), np.ones(40))
    mean, root = problem(40, 0)
    point = np.empty(40)
    value = optimistic(wide, mean, root, 2.0, point)
    for i in range(40):
        flipped = point.copy()
        flipped[i] *= -1
        assert mean @ flipped + 2 * np.linalg.norm(root.T @ flipped) <= value + CLOSE


def test_the_regret_is_that_of_a_fine_discretisation():
    """200 unit vectors in the plane against all of them; 6 standard errors, once in 10⁸."""
    ball, grid = SetBandit(Ball(2)), tsucb.LinearBandit(arms=200, features=2)
    policies = [tsucb.TSUCB(1), tsucb.OFUL()]
    given = {"horizon": 300, "runs": 200, "workers": 1}
    one = simulate(ball, ball.model(), policies, **given)
    other = simulate(grid, grid.model(), policies, **given)
    for policy in one.policies:
        first, second = one.final(policy), other.final(policy)
        error = math.sqrt(first.var() / first.size + second.var() / second.size)
        assert abs(first.mean() - second.mean()) < 6 * error
        assert error < 0.08 * second.mean()


def test_a_run_depends_on_its_number_and_the_seed_alone():
    bandit = SetBandit(Ball(2))
    policies = [tsucb.TSUCB(1), tsucb.OFUL()]
    both = simulate(
        bandit, bandit.model(), policies, horizon=50, runs=3, workers=2, checkpoints=[7, 50]
    )
    alone = simulate(
        bandit, bandit.model(), policies[:1], horizon=50, runs=[2], workers=1, checkpoints=[7, 50]
    )
    assert np.array_equal(both.regret[0, 2:], alone.regret[0])
    assert (np.diff(both.regret, axis=2) >= -1e-12).all()
    assert list(both.checkpoints) == [7, 50]
    again = simulate(
        bandit, bandit.model(), policies, horizon=50, runs=3, seed=1, checkpoints=[7, 50]
    )
    assert not np.array_equal(both.regret, again.regret)


def revenue(price, rng):
    """Customers buy with a chance that falls with the price."""
    return price * (rng.random() < 1 / (1 + math.exp(0.5 * (price - 12))))


def test_an_agent_finds_a_price_and_continues_after_it_was_saved(tmp_path):
    prices = Spline(5, 20, pieces=4)
    model = prices.model(noise=6.0, level=5.0, spread=4.0)
    agent, rng = SetAgent(prices, model, seed=3), np.random.default_rng(0)
    for _ in range(1500):
        price = agent.choose()
        assert isinstance(price, float)
        assert 5 <= price <= 20
        agent.reward(price, revenue(price, rng))
    best = minimize_scalar(lambda p: -p / (1 + math.exp(0.5 * (p - 12))), bounds=(5, 20)).x
    truth = lambda p: p / (1 + math.exp(0.5 * (p - 12)))  # noqa: E731
    assert truth(agent.best()) > 0.95 * truth(best)
    mean, std = agent.predict([agent.best()])
    assert abs(mean[0] - truth(agent.best())) < 5 * std[0]
    path = tmp_path / "prices.tsucb"
    agent.save(path)
    again = SetAgent.load(path)
    assert (again.arms, again.model, again.policy) == (prices, model, agent.policy)
    assert again.rewards == 1500
    for _ in range(5):
        price = agent.choose()
        assert again.choose() == price
        agent.reward(price, 3.0)
        again.reward(price, 3.0)
    with pytest.raises(ValueError, match="was saved with other settings"):
        SetAgent.load(path, Spline(5, 21, pieces=4), model)
    (tmp_path / "bad.tsucb").write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged"):
        SetAgent.load(tmp_path / "bad.tsucb", prices, model)


def test_an_agent_on_vectors():
    agent = SetAgent(Ball(2), tsucb.Linear(2, noise=0.1), seed=0)
    for _ in range(50):
        arm = agent.choose()
        assert np.linalg.norm(arm) == pytest.approx(1)
        agent.reward(arm, float(arm @ [0.6, -0.8]))
    assert agent.best() == pytest.approx([0.6, -0.8], abs=0.1)


BALL = SetBandit(Ball(2))
FLAT = [[1, 0], [-1, 0], [0, 1], [0, -1]]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Ball(0), "features must be a whole number of at least 1"),
        (lambda: Ball(2, radius=-1), "radius must be positive"),
        (lambda: Ellipsoid([[1, 2], [2, 1]]), "smallest eigenvalue is -1"),
        (lambda: Ellipsoid([[1, 2, 3]]), "square matrix"),
        (lambda: Ellipsoid([[1, 2], [0, 5]]), "symmetric"),
        (lambda: Box([0, 0], [1]), "vectors of the same length"),
        (lambda: Box([0, 2], [1, 1]), "no entry of low above"),
        (lambda: Box([0, 0], [1, math.inf]), "finite"),
        (lambda: Polytope([1.0, 2.0]), "one point a row"),
        (lambda: Polytope([[1.0, math.nan]]), "not all of it is finite"),
        (lambda: Polytope.from_inequalities([[1, 0], [-1, 0]], [1, 1]), "entry 1 .* unbounded"),
        (lambda: Polytope.from_inequalities([[1.0], [-1.0]], [1, -2]), "no arm satisfies"),
        (lambda: Polytope.from_inequalities(FLAT, [1, -1, 1, 0]), "inside"),
        (lambda: Polytope.from_inequalities([[1, 0]], [1, 2]), "one bound for each"),
        (lambda: Polytope.from_inequalities([[0, 0]], [1]), "zeros only"),
        (lambda: Polynomial(3, 3), "low must be below high"),
        (lambda: Polynomial(0, 1, degree=0), "degree must be"),
        (lambda: Spline(0, math.nan), "high must be finite"),
        (lambda: Spline(0, 1).model(noise=1, level=math.inf), "level must be"),
        (lambda: SetBandit([1, 2]), "must be a set"),
        (lambda: simulate(BALL, tsucb.Linear(3), [tsucb.TSUCB(1)], horizon=5, runs=1), "3 feat"),
        (lambda: simulate(BALL, tsucb.NIGLinear(2), [tsucb.TSUCB(1)], horizon=5, runs=1), "share"),
        (lambda: simulate(BALL, BALL.model(), [tsucb.IDS(5)], horizon=5, runs=1), "does not play"),
        (lambda: simulate(3, BALL.model(), [tsucb.TSUCB(5)], horizon=5, runs=1), "environment"),
        (lambda: SetAgent(Ball(2), tsucb.Linear(2)).reward([1.0], 1.0), "2 finite numbers"),
        (lambda: SetAgent(Ball(2), tsucb.Linear(2)).reward([1.0, 0], math.nan), "NaN"),
        (
            lambda: SetAgent(Polynomial(0, 1, 1), tsucb.Linear(2)).reward(2.0, 1.0),
            "not from 0 to 1",
        ),
        (
            lambda: SetAgent(Polynomial(0, 1, 1), tsucb.Linear(2)).predict([0.5, 2.0]),
            "not from 0 to 1",
        ),
        (lambda: SetAgent(Ball(2), tsucb.Linear(2)).predict([[1.0]]), "2 finite numbers"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_in_a_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()
