"""Tests of formulas as MathML."""

import pytest

from thetax.report.formula import font, formula, typeset


@pytest.mark.parametrize(
    ("latex", "has"),
    [
        (r"\frac{a}{b}", "<mfrac>"),
        (r"\sum_{i=1}^n x_i", "&#x02211;"),
        (r"\mathrm{sgn}(z)", "<mi>sgn</mi>"),
        (r"A \succeq 0", "<mo>&#x02AB0;</mo>"),
        (r"f(0) = +1", '<mo form="prefix">&#x0002B;</mo>'),
        (r"f(x) + 1", "<mo>&#x0002B;</mo>"),
        (r"a / b", '<mo lspace="0" rspace="0" stretchy="false">&#x0002F;</mo>'),
        (r"= |c|", '<mo lspace="0" rspace="0" stretchy="false">&#x0007C;</mo><mi>c</mi>'),
        (r"\begin{cases} 1 & x > 0 \\ 0 & x \le 0 \end{cases}", "<mtable>"),
        (r"\nabla h(\infty)", "&#x0221E;"),
    ],
)
def test_a_formula_becomes_mathml(latex, has):
    assert has in formula(latex)
    assert "\\" not in formula(latex)


def test_text_is_escaped_and_formulas_are_typeset():
    text = typeset("for $x < 1$ & `a < b`:\n\n$$y$$")
    assert text.count("<p>") == 2
    assert "&amp; <code>a &lt; b</code>" in text
    assert 'display="block"' in text
    assert "$" not in text


def test_a_single_dollar_sign_is_kept():
    assert typeset("5 $ and no more") == "<p>5 $ and no more</p>"


def test_the_page_includes_its_font():
    assert font().startswith("@font-face")
    assert "http" not in font()
