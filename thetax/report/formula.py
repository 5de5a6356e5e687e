"""Text with LaTeX formulas as HTML: text between dollar signs becomes MathML.

The page includes a mathematical font (a subset of STIX Two Math, SIL Open Font Licence), since
large operators and brackets are not stretched on machines without one.
"""

import base64
import re
from functools import cache
from html import escape
from importlib.resources import files

from latex2mathml.converter import convert


@cache
def font() -> str:
    """The CSS of the mathematical font, with the font as a data URL."""
    data = base64.b64encode(
        files("thetax.report").joinpath("stix-two-math.woff2").read_bytes()
    ).decode()
    face = (
        f'@font-face{{font-family:"thetax math";src:url(data:font/woff2;base64,{data}) '
        f'format("woff2")}}'
    )
    return face + 'math{font-family:"thetax math",math}'


@cache
def formula(latex: str, *, block: bool = False) -> str:
    r"""One formula as MathML.

    >>> formula(r"\frac{1}{2}")[:5], "<mfrac>" in formula(r"\frac{1}{2}")
    ('<math', True)
    """
    math = convert(latex, display="block" if block else "inline")
    math = re.sub(r'(?:<mi mathvariant="normal">\w</mi>){2,}', _word, math)
    math = re.sub(
        r"<msup>(<mi>[^<]*</mi>)<m[io]>(&#x0203[2-4];)</m[io]></msup>", r"\1<mo>\2</mo>", math
    )  # primes are raised already
    math = re.sub(r"(<mo[^>]*>[^<]+</mo>)<mo>(&#x0002B;|&#x02212;)</mo>", _signed, math)
    math = re.sub(r"<mi>(&#x022?[0-9A-F]{3,4};|&#x02A[0-9A-F]{2};)</mi>", _relation, math)
    return re.sub(
        r"<mo(?: stretchy=\"false\")?>(&#x0002F;|&#x0007C;)</mo>",
        r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>',
        math,
    )


def _word(letters: re.Match) -> str:
    """Joins consecutive upright letters to one word: sgn, not s g n."""
    return "<mi>" + "".join(re.findall(r">(\w)<", letters.group())) + "</mi>"


def _signed(pair: re.Match) -> str:
    """Makes plus and minus after another operator a prefix: = +1, not = + 1; but not after a
    closing bracket.
    """
    before, sign = pair.groups()
    if re.search(r">(&#x00029;|&#x0005D;|&#x0007D;|&#x02016;|!)<", before):
        return pair.group()
    return f'{before}<mo form="prefix">{sign}</mo>'


def _relation(symbol: re.Match) -> str:
    """Makes symbols from U+2200 on operators, except for a few letters."""
    code = int(symbol.group(1)[3:-1], 16)
    letters = {
        0x2200,
        0x2202,
        0x2203,
        0x2205,
        0x2207,
        0x221E,
        0x22A4,
        0x22A5,
        0x22EE,
        0x22EF,
        0x22F1,
    }
    if 0x2308 <= code <= 0x230B:  # floor and ceiling brackets, which may have an exponent
        return f'<mo stretchy="false">{symbol.group(1)}</mo>'
    return symbol.group() if code < 0x2200 or code in letters else f"<mo>{symbol.group(1)}</mo>"


def typeset(text: str) -> str:
    r"""Paragraphs of text with `$formulas$`, `$$displayed$$` formulas and `code`, as HTML.

    >>> typeset("at most $n$ & no more")
    '<p>at most <math ...</math> &amp; no more</p>'
    """
    return "".join(f"<p>{_line(part)}</p>" for part in re.split(r"\n\s*\n", text.strip()))


def _line(text: str) -> str:
    parts = re.split(r"(\$\$.+?\$\$|\$.+?\$|`[^`]+`)", text, flags=re.DOTALL)
    return "".join(_part(part) for part in parts)


def _part(part: str) -> str:
    if part.startswith("$$") and len(part) > 4:
        return formula(part[2:-2].strip(), block=True)
    if part.startswith("$") and len(part) > 2:
        return formula(part[1:-1].strip())
    if part.startswith("`") and len(part) > 2:
        return f"<code>{escape(part[1:-1])}</code>"
    return escape(part)
