"""Distributions for compiled code: normal, gamma, chi-squared and Beta.

SciPy's functions would do, too, but take 0.15 s to import, and its incomplete beta function takes
up to 2.5 times as long. The functions here take and return floats, can be called from compiled code
and from Python, and are tested against SciPy. Quantiles take the upper tail q = 1 − p, because
policies ask for levels such as p = 1 − 1/(1 + t), whose distance from one would be lost in p.
"""

import math

from tsucb.compiler import compiled

ROOT_2 = math.sqrt(2.0)
ROOT_2_PI = math.sqrt(2.0 * math.pi)
LOG_2_PI = math.log(2.0 * math.pi)
EPSILON = 2.0**-53  # half the spacing of floats at one: the series below stop there
TINY = 1e-300  # replaces zero in the denominators of continued fractions


@compiled
def normal_cdf(x: float) -> float:
    """Return Φ(x) of the standard normal, with full relative accuracy.

    >>> round(normal_cdf(-1.96), 6)
    0.024998
    """
    return 0.5 * math.erfc(-x / ROOT_2)


@compiled
def normal_quantile_upper(q: float) -> float:
    """Return the x with 1 − Φ(x) = q, for q from 0 to 1, accurate also for tiny q.

    Wichura's rational approximations (1988, algorithm AS 241), good to 16 digits.

    >>> round(normal_quantile_upper(0.025), 6)
    1.959964
    """
    if not 0.0 < q < 1.0:
        return math.inf if q == 0.0 else -math.inf if q == 1.0 else math.nan
    c = 0.5 - q
    if abs(c) <= 0.425:
        r = 0.180625 - c * c
        # fmt: off
        top = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r
            + 6.7265770927008700853e4) * r + 4.5921953931549871457e4) * r
            + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
            + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
        bottom = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r
            + 3.9307895800092710610e4) * r + 2.1213794301586595867e4) * r
            + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
            + 4.2313330701600911252e1) * r + 1.0
        # fmt: on
        return c * top / bottom
    r = math.sqrt(-math.log(min(q, 1.0 - q)))
    if r <= 5.0:
        r -= 1.6
        # fmt: off
        top = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r
            + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0) * r
            + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
            + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        bottom = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r
            + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
            + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
            + 2.05319162663775882187e0) * r + 1.0
        # fmt: on
    else:
        r -= 5.0
        # fmt: off
        top = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
            + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
            + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
            + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        bottom = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r
            + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
            + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
            + 5.99832206555887937690e-1) * r + 1.0
        # fmt: on
    return math.copysign(top / bottom, c)


@compiled
def stirling_error(x: float) -> float:
    """Return log Γ(x + 1) − log(√(2πx) (x/e)^x), the error of Stirling's formula."""
    if x < 16.0:
        return math.lgamma(x + 1.0) - (x + 0.5) * math.log(x) + x - 0.5 * LOG_2_PI
    w = 1.0 / (x * x)
    series = 1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * (1 / 1188))))
    return series / x


@compiled
def deviance(x: float, mean: float) -> float:
    """Return x log(x/mean) + mean − x, without cancellation for x near mean (Loader 2000)."""
    difference = x - mean
    if abs(difference) > 0.1 * (x + mean):
        return x * math.log(x / mean) - difference
    v = difference / (x + mean)
    total = difference * v
    term = 2.0 * x * v
    for j in range(1, 100):
        term *= v * v
        before = total
        total += term / (2 * j + 1)
        if total == before:
            break
    return total


@compiled
def gamma_front(shape: float, x: float) -> float:
    """Return x^shape e^−x / Γ(shape + 1), without differences of large logarithms."""
    return math.exp(-stirling_error(shape) - deviance(shape, x)) / (ROOT_2_PI * math.sqrt(shape))


@compiled
def gamma_tails(shape: float, x: float) -> tuple[float, float]:
    """Return P(X ≤ x) and P(X > x) of Gamma(shape, 1), the smaller with relative accuracy.

    Uses the power series of the lower tail for x < shape + 1, and the continued fraction of the
    upper tail beyond (Abramowitz and Stegun 1964, 6.5.29 and 6.5.31).
    """
    if x <= 0.0:
        return 0.0, 1.0
    if x == math.inf:
        return 1.0, 0.0
    front = gamma_front(shape, x)
    if x < shape + 1.0:
        term = 1.0
        total = 1.0
        n = shape
        while term > EPSILON * total:
            n += 1.0
            term *= x / n
            total += term
        lower = front * total
        return lower, 1.0 - lower
    b = x + 1.0 - shape
    c = 1.0 / TINY
    d = 1.0 / b
    fraction = d
    for i in range(1, 100_000):
        a = -i * (i - shape)
        b += 2.0
        d = 1.0 / (a * d + b)
        c = b + a / c
        step = c * d
        fraction *= step
        if abs(step - 1.0) <= 4.0 * EPSILON:
            break
    upper = front * shape * fraction
    return 1.0 - upper, upper


@compiled
def chi_squared_quantile_upper(tail: float, degrees: float) -> float:
    """Return the x that a chi-squared variable of these degrees exceeds with chance `tail`.

    Uses Newton's method on the logarithm of the tail, from the Wilson–Hilferty value.

    >>> round(chi_squared_quantile_upper(0.05, 10.0), 6)
    18.307038
    """
    if not 0.0 < tail < 1.0:
        return math.inf if tail == 0.0 else 0.0 if tail == 1.0 else math.nan
    shape = 0.5 * degrees
    third = 2.0 / (9.0 * degrees)
    root = 1.0 - third + normal_quantile_upper(tail) * math.sqrt(third)
    log_gamma = math.lgamma(shape)
    # Near zero Wilson–Hilferty fails; the lower tail is about (x/2)^shape / Γ(shape + 1) there.
    near_zero = math.exp((math.log1p(-tail) + log_gamma + math.log(shape)) / shape)
    x = max(0.5 * degrees * max(root, 0.0) ** 3, near_zero)
    for _ in range(60):
        lower, upper = gamma_tails(shape, x)
        density = math.exp((shape - 1.0) * math.log(x) - x - log_gamma)
        # The logarithm of the smaller tail is nearly linear in x.
        if tail < 0.5:
            move = upper * math.log(upper / tail) / density
        else:
            move = -lower * math.log(lower / (1.0 - tail)) / density
        after = max(x + move, 0.1 * x)
        done = abs(after - x) <= 1e-13 * x
        x = after
        if done:
            break
    return 2.0 * x


@compiled
def beta_front(x: float, y: float, a: float, b: float) -> float:
    """Return x^a y^b / B(a, b), y = 1 − x: x y times the Beta density (Loader 2000)."""
    n = a + b
    log_value = (
        stirling_error(n)
        - stirling_error(a)
        - stirling_error(b)
        - deviance(a, n * x)
        - deviance(b, n * y)
    )
    return math.exp(log_value) * math.sqrt(a * b / (n * 2.0 * math.pi))


@compiled
def beta_fraction(x: float, y: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, with y = 1 − x.

    This is the even part of Abramowitz and Stegun (1964) 26.5.8, written without differences of
    large numbers (DiDonato and Morris 1992, BFRAC).
    """
    surplus = (a + b) * y - b if a > b else a - (a + b) * x
    bottom = a / (a + 1.0) * (surplus + 1.0)
    c = bottom
    d = 0.0
    fraction = bottom
    for n in range(1, 1_000_000):
        k = a + 2.0 * n - 1.0
        top = (a + n - 1.0) / k * ((a + b + n - 1.0) / k) * n * (b - n) * x * x
        bottom = n + n * (b - n) * x / k + (a + n) / (k + 2.0) * (surplus + 1.0 + n * (1.0 + y))
        d = bottom + top * d
        d = 1.0 / (d if d != 0.0 else TINY)
        c = bottom + top / c
        c = c if c != 0.0 else TINY
        step = c * d
        fraction *= step
        if abs(step - 1.0) <= 8.0 * EPSILON:
            break
    return 1.0 / fraction


@compiled
def beta_tails(x: float, y: float, a: float, b: float) -> tuple[float, float]:
    """Return P(X ≤ x) and P(X > x) of Beta(a, b), y = 1 − x, the smaller one accurate."""
    if x <= 0.0:
        return 0.0, 1.0
    if y <= 0.0:
        return 1.0, 0.0
    front = beta_front(x, y, a, b)
    if x * (a + b + 2.0) < a + 1.0:  # left of the mode, where the fraction converges fast
        lower = front * beta_fraction(x, y, a, b)
        return lower, 1.0 - lower
    upper = front * beta_fraction(y, x, b, a)
    return 1.0 - upper, upper


@compiled
def beta_quantile_upper(tail: float, a: float, b: float) -> float:
    """Return the x that a Beta(a, b) variable exceeds with chance `tail`.

    Uses Newton's method for log(x/(1 − x)), in the logarithm of the smaller tail, inside a bracket
    that every step narrows.

    >>> round(beta_quantile_upper(0.05, 3.0, 5.0), 6)
    0.658739
    """
    if not 0.0 < tail < 1.0:
        return 1.0 if tail == 0.0 else 0.0 if tail == 1.0 else math.nan
    low, high = -745.0, 745.0  # the logits of the smallest float and its mirror image
    logit = math.log(a / b)
    for _ in range(200):
        x = 1.0 / (1.0 + math.exp(-logit))
        y = 1.0 / (1.0 + math.exp(logit))
        lower, upper = beta_tails(x, y, a, b)
        if upper > tail:
            low = logit
        else:
            high = logit
        slope = beta_front(x, y, a, b)  # the derivative of the lower tail in the logit
        if tail < 0.5:
            move = upper * math.log(upper / tail) / slope
        else:
            move = -lower * math.log(lower / (1.0 - tail)) / slope
        after = logit + move
        if not low < after < high:  # also when a tail underflowed and the move is not a number
            after = 0.5 * (low + high)
        done = abs(after - logit) <= 1e-14 * max(1.0, abs(logit))
        logit = after
        if done:
            break
    return 1.0 / (1.0 + math.exp(-logit))
