"""Tabular datasets: credit-card defaults, trading volumes, cars, spam."""

import numpy as np

from ..io.rda import read_rda
from ..io.readers import Arrays, numbers, read_csv, read_grid
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_WORDS = (
    "make address all 3d our over remove internet order mail receive will people report addresses "
    "free business email you credit your font 000 money hp hpl george 650 lab labs telnet 857 data "
    "415 85 technology 1999 parts pm direct cs meeting original project re edu table conference"
)
_SPAM = (
    *(f"word_freq_{word}" for word in _WORDS.split()),
    *(f"char_freq_{sign}" for sign in ";([!$#"),
    *(f"capital_run_length_{kind}" for kind in ("average", "longest", "total")),
)
_NYSE = ("DJ_return", "log_volume", "log_volatility")
_WEEK = ("mon", "tues", "wed", "thur", "fri")
_CAR = ("cylinders", "displacement", "horsepower", "weight", "acceleration", "year", "origin")


def _choice(
    columns: dict[str, list[str]], column: str, options: tuple[str, ...], *, name: str
) -> np.ndarray:
    """A categorical column as integers: 0 for the first option, 1 for the second, and so on."""
    words = columns.get(column, [])
    unknown = [word for word in words if word not in options]
    if not words or unknown:
        given = repr(unknown[0]) if unknown else "no values"
        raise ValueError(
            f"{name}: column {column!r} must hold {' or '.join(options)}; got {given}."
        )
    return np.array([options.index(word) for word in words], np.int32)


def _from_default(files: Files) -> Arrays:
    name = files["Default.csv"].name
    columns = read_csv(files["Default.csv"])
    student = _choice(columns, "student", ("No", "Yes"), name=name)
    money = numbers(columns, ("balance", "income"), name=name)
    xs = np.concatenate([student[:, None].astype(np.float32), money], axis=1)
    return {"train_x": xs, "train_y": _choice(columns, "default", ("No", "Yes"), name=name)}


def _from_nyse(files: Files) -> Arrays:
    """The features of a day and the weekday of the next (0 is Monday); the target is the log volume
    of the next day, which also decides between training and test set.
    """
    name = files["NYSE.csv"].name
    columns = read_csv(files["NYSE.csv"])
    days = numbers(columns, _NYSE, name=name)
    week = _choice(columns, "day_of_week", _WEEK, name=name).astype(np.float32)
    train = _choice(columns, "train", ("FALSE", "TRUE"), name=name)[1:] == 1
    xs = np.concatenate([days[:-1], week[1:, None]], axis=1)
    ys = days[1:, 1]
    return {"train_x": xs[train], "train_y": ys[train], "test_x": xs[~train], "test_y": ys[~train]}


def _from_auto(files: Files) -> Arrays:
    """Cars and their miles per gallon; the origin is one-hot encoded."""
    name = files["Auto.csv"].name
    columns = read_csv(files["Auto.csv"])
    origin = _choice(columns, "origin", ("1", "2", "3"), name=name)
    xs = np.concatenate(
        [numbers(columns, _CAR[:-1], name=name), np.eye(3, dtype=np.float32)[origin]], axis=1
    )
    return {"train_x": xs, "train_y": numbers(columns, ("mpg",), name=name)[:, 0]}


def _from_uci(files: Files) -> Arrays:
    rows = read_grid(files["spambase.data"], columns=58)
    return {"train_x": rows[:, :57], "train_y": rows[:, 57].astype(np.int32)}


def _from_kernlab(files: Files) -> Arrays:
    frames = read_rda(files["spam.rda"])
    *xs, labels = frames.get("spam", {"": np.array(0.0)}).values()
    if len(xs) != 57 or any(x.dtype.kind != "f" for x in xs) or labels.dtype.kind != "U":
        raise ValueError(
            f"{files['spam.rda'].name}: has no data frame 'spam' of 57 numeric columns and a label."
        )
    return {
        "train_x": np.stack(xs, axis=1).astype(np.float32),
        "train_y": (labels == "spam").astype(np.int32),
    }


_DEFAULT_FORM = Form(("Default.csv",), _from_default, 1 << 20)
_NYSE_FORM = Form(("NYSE.csv",), _from_nyse, 1 << 20)
_AUTO_FORM = Form(("Auto.csv",), _from_auto, 1 << 20)
_UCI_FORM = Form(("spambase.data",), _from_uci, 2 << 20)
_KERNLAB_FORM = Form(("spam.rda",), _from_kernlab, 4 << 20)

_ISL = (
    "BSD-3-Clause as part of the ISLP package; G. James, D. Witten, T. Hastie, R. Tibshirani, J. "
    "Taylor"
)


def _islp(form: Form) -> tuple[Web, Package]:
    """Sources of a dataset of *An Introduction to Statistical Learning*."""
    return (
        Web("https://raw.githubusercontent.com/intro-stat-learning/ISLP/main/ISLP/data/", form, {}),
        Package(
            client="pip",
            name="ISLP",
            version="0.6.0",
            archive="islp-0.6.0-py3-none-any.whl",
            sha256="ca772cecca1747a2f84ee799a5503ddddbdf0e98f90c235494790c1d036c694b",
            size=16_593_353,
            form=form,
            members={name: f"ISLP/data/{name}" for name in form.files},
        ),
    )


default = Dataset(
    name="default",
    about="10,000 credit-card holders: does one default, given student, balance and income "
    "(simulated)",
    licence=_ISL,
    size=160_000,
    classes=("no", "yes"),
    features=("student", "balance", "income"),
    fingerprint="c2e934d74ad8812a4192d5440f2df7409a4a5ab4eea62152624b221e0a3fc546",
    forms=(_DEFAULT_FORM,),
    sources=_islp(_DEFAULT_FORM),
)

nyse = Dataset(
    name="nyse",
    about="6,050 trading days in order: tomorrow's log volume from today's figures and its "
    "weekday; tested after 1979",
    licence=_ISL,
    size=122_000,
    features=(*_NYSE, "next_weekday"),
    fingerprint="b0fe8b62989f97cc0c3153ae4f1afd56d940b60b446500d9965fd98f549692da",
    forms=(_NYSE_FORM,),
    sources=_islp(_NYSE_FORM),
)

auto = Dataset(
    name="auto",
    about="392 cars of 1970 to 1982: miles to the gallon, from engine, weight, year and origin; "
    "no official split",
    licence=_ISL,
    size=16_000,
    features=(*_CAR[:-1], "american", "european", "japanese"),
    fingerprint="5a90f1a29634be1948d1b02afa73f6de6163ec9efd1590a21b2c4ae7b4e36c98",
    forms=(_AUTO_FORM,),
    sources=_islp(_AUTO_FORM),
)

spambase = Dataset(
    name="spambase",
    about="4,601 e-mails by 57 frequencies of words and signs: spam or not, no official split",
    licence="CC BY 4.0, M. Hopkins, E. Reeber, G. Forman, J. Suermondt (UCI Spambase)",
    size=1_068_000,
    classes=("not spam", "spam"),
    features=_SPAM,
    fingerprint="8621e788a7ab4233a485f5308ed9f99e3edb25ffa76958cfe1aecb814703407c",
    forms=(_UCI_FORM, _KERNLAB_FORM),
    sources=(
        Web("https://archive.ics.uci.edu/ml/machine-learning-databases/spambase/", _UCI_FORM, {}),
        Package(
            client="apt",
            name="r-cran-kernlab",
            version="0.9-32-1",
            archive="r-cran-kernlab_0.9-32-1_amd64.deb",
            sha256="ab09291d7de965e84f808e3ae646d7043fa87e1e30cfcebec6b95d14f6828b62",
            size=2_112_480,
            form=_KERNLAB_FORM,
            members={"spam.rda": "./usr/lib/R/site-library/kernlab/data/spam.rda"},
        ),
    ),
)
