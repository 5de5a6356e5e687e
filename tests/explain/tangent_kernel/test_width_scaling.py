"""Powers of the width, and how far finite ensembles agree with the infinite one."""

import numpy as np
import pytest
from scipy.stats import linregress, pearsonr

from thetax.explain import InfiniteWidthComparison, WidthScaling, power_law_exponent

rng = np.random.default_rng(0)


def test_powers_are_slopes_in_logarithms():
    widths = np.array([8, 32, 128, 512])
    values = (
        rng.uniform(0.5, 2, (3, 4, 2))
        * widths[:, None] ** np.array([-0.5, -1.0, -1.5])[:, None, None]
    )
    for power, each in zip(WidthScaling(*values, widths).exponents, values):
        assert power == pytest.approx(
            linregress(np.repeat(np.log(widths), 2), np.log(each).ravel()).slope
        )


def test_agreement_is_correlation():
    found = InfiniteWidthComparison(rng.normal(size=(2, 9, 3)), rng.uniform(size=(2, 9)))
    assert found.agreement[0] == pytest.approx(pearsonr(*found.mean.reshape(2, -1)).statistic)
    assert found.agreement[1] == pytest.approx(pearsonr(*found.std).statistic)


@pytest.mark.parametrize(
    ("widths", "values"), [([8], [1.0]), ([8, 16], [1.0, 0.0]), ([8, 16], [1.0, 0.5, 0.2])]
)
def test_invalid_power_laws_are_rejected(widths, values):
    with pytest.raises(
        ValueError,
        match="power_law_exponent: expected at least two widths and one row of values for"
        " each, all positive; got",
    ):
        power_law_exponent(widths, np.array(values))
