"""The regularised incomplete gamma function and its inverse, which gamma quantiles and Poisson tails need."""

import math
from functools import lru_cache
from statistics import NormalDist

_EPSILON = 1e-15
_SMALLEST = 1e-300
_MOST_TERMS = 100_000


def gamma_cdf(shape: float, x: float) -> float:
    """P(shape, x) = P(X <= x) for X ~ Gamma(shape, 1).

    Series below shape + 1, continued fraction above (Abramowitz & Stegun 6.5.29 and 6.5.31).
    """
    if x <= 0.0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1.0:
        return min(1.0, front * _series(shape, x))
    return max(0.0, 1.0 - front * _continued_fraction(shape, x))


@lru_cache(maxsize=256)  # most runs ask for the same one in each pass: that of no failure
def gamma_quantile(shape: float, probability: float) -> float:
    """The x with P(shape, x) = probability; 0 < probability < 1.

    Newton's method from the Wilson-Hilferty cube, kept inside a bracket that shrinks with every step.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a quantile needs a probability inside (0, 1), not {probability}")
    cube = 1.0 - 1.0 / (9.0 * shape) + NormalDist().inv_cdf(probability) / (3.0 * math.sqrt(shape))
    # Far in the lower tail the cube turns negative; there P(shape, x) is close to x^shape / Gamma(shape + 1).
    tail = math.exp((math.log(probability) + math.lgamma(shape + 1.0)) / shape)
    x = shape * cube**3 if cube > 0.1 else tail
    low, high = 0.0, math.inf
    for _ in range(200):
        error = gamma_cdf(shape, x) - probability
        low, high = (low, x) if error > 0.0 else (x, high)
        density = math.exp((shape - 1.0) * math.log(x) - x - math.lgamma(shape))
        step = error / density if density > 0.0 else math.inf
        following = x - step
        if not low < following < high:
            following = 2.0 * x if high == math.inf else (low + high) / 2.0
        if abs(following - x) <= 1e-13 * x:
            return following
        x = following
    return x


def _series(shape: float, x: float) -> float:
    term = total = 1.0 / shape
    for n in range(1, _MOST_TERMS):
        term *= x / (shape + n)
        total += term
        if term < total * _EPSILON:
            break
    return total


def _continued_fraction(shape: float, x: float) -> float:
    # Lentz's method: denominators that vanish are replaced by something tiny.
    b = x + 1.0 - shape
    c = 1.0 / _SMALLEST
    d = 1.0 / b if b else 1.0 / _SMALLEST
    value = d
    for n in range(1, _MOST_TERMS):
        a = -n * (n - shape)
        b += 2.0
        d = a * d + b or _SMALLEST
        c = b + a / c or _SMALLEST
        d = 1.0 / d
        value *= d * c
        if abs(d * c - 1.0) < _EPSILON:
            break
    return value
