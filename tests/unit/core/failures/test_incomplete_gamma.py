"""Gamma quantiles and Poisson tails, beside values that are known in closed form."""

import math

import pytest

from lockstep.core.failures.incomplete_gamma import gamma_cdf, gamma_quantile


@pytest.mark.parametrize(
    ("shape", "x", "probability"),
    [
        (1.0, -1.0, 0.0),
        (1.0, 0.0, 0.0),
        (1.0, 1.0, 1 - math.exp(-1)),
        (1.0, 30.0, 1 - math.exp(-30)),
        (2.0, 3.0, 1 - 4 * math.exp(-3)),
        (0.5, 0.5, math.erf(math.sqrt(0.5))),
        (0.5, 4.0, math.erf(2.0)),
        (3.0, 1e3, 1.0),
    ],
)
def test_the_distribution_is_that_of_the_tables(shape: float, x: float, probability: float) -> None:
    assert gamma_cdf(shape, x) == pytest.approx(probability, abs=1e-13)


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 2.5, 40.0, 5000.0])
@pytest.mark.parametrize("probability", [1e-9, 0.025, 0.5, 0.975, 1 - 1e-9])
def test_a_quantile_is_the_inverse(shape: float, probability: float) -> None:
    assert gamma_cdf(shape, gamma_quantile(shape, probability)) == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize("probability", [-0.1, 0.0, 1.0, 1.1])
def test_a_quantile_of_what_is_no_probability_is_an_error(probability: float) -> None:
    with pytest.raises(ValueError, match="inside"):
        gamma_quantile(1.0, probability)
