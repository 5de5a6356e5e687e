"""Tests of the report: all lenses that apply, self-contained, robust to failing lenses."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from PIL import Image

from thetax import explain
from thetax.layers import BatchNorm, Residual, fold_batch_norm
from thetax.models import MLP
from thetax.plot import DARK, LIGHT
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, lens, look
from thetax.report.page import RESULTS_NOTE
from thetax.report.registry import subsample
from thetax.train import binary_cross_entropy, cross_entropy, squared_error

EVALUATED = {
    "Confusion matrix",
    "Most confident mistakes",
    "Calibration",
    "Neural tangent kernel by class",
}
ATTACKED = {
    "Adversarial attacks: robust accuracy",
    "Adversarial attacks: distance to the decision boundary",
    "Adversarial attacks: least robust examples",
    "Adversarial attacks: loss surface and gradient masking",
}
CLASSIFIES = EVALUATED | ATTACKED
EXPENSIVE = {"Hessian eigenvalues and sharpness"} | ATTACKED
OTHERS = {  # do not apply
    "Margins",
    "Effective parameters under weight decay",
    "Dropout as a regulariser",
    "Uncertainty by MC dropout",
    "Convolution filters",
    "Feature maps",
    "Saliency maps",
    "Translation equivariance",
    "Gradients through time",
    "Eigenvalues of the recurrence",
    "Attention alignment",
    "Text samples",
    "Translations",
    "Attention maps",
    "Token saliency",
    "Token embeddings",
    "Prediction intervals and their coverage",
    "Feature relevance (ARD)",
    "Lazy training or feature learning",
    "Linearised against full training",
    "Neural tangent kernel against width",
    "Trained networks against the infinite-width limit",
    "Predictions on the graph",
    "Smoothness of node features",
    "Influence by distance",
    "Attention on edges",
    "Attribution to nodes and edges",
    "Graphs told apart",
    "Adversarial example",
    "Certified accuracy by randomised smoothing",
}
HISTORY = {"train loss": np.array([1.0, 0.5]), "valid error": np.array([0.5, 0.25])}


def outcome(kind):
    xs = np.asarray(jr.normal(jr.key(1), (60, 25)))
    model, ys, objective, classes = {
        "classes": (
            MLP.init(25, 6, 3, key=jr.key(0)),
            np.arange(60) % 3,
            cross_entropy,
            ("a", "<b>", "c & d"),
        ),
        "binary": (
            MLP.init(25, 6, 1, key=jr.key(0)),
            np.arange(60) % 2,
            binary_cross_entropy,
            ("no", "yes"),
        ),
        "regression": (MLP.init(25, 6, 1, key=jr.key(0)), xs[:, 0], squared_error, ()),
        "normalised": (
            MLP.init(25, 6, 6, 3, normalise=BatchNorm.init, connect=Residual, key=jr.key(0)),
            np.arange(60) % 3,
            cross_entropy,
            ("a", "b", "c"),
        ),
    }[kind]
    table = {"network <i>": {"test error": 0.25}, "baseline": {"test error": 0.5, "test loss": 1.0}}
    return Outcome(
        model,
        (xs[:40], ys[:40]),
        (xs[40:], ys[40:]),
        objective,
        HISTORY,
        classes,
        table,
        "it was over",
        2.0,
    )


@pytest.fixture
def lenses():
    before = list(LENSES)
    yield LENSES
    LENSES[:] = before


@pytest.fixture
def quick(lenses):
    """Without the slowest lenses."""
    lenses[:] = [shown for shown in lenses if shown.title not in OTHERS | EXPENSIVE]
    return lenses


class Page(HTMLParser):
    """Parses a page: tags, ids, links and text."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.note(attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.note(attrs)

    def note(self, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        found = [attrs[name] for name in ("href", "xlink:href", "src") if name in attrs]
        self.links += [link[1:] for link in found if link.startswith("#")]
        self.sources += [link for link in found if not link.startswith("#")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open and self.open[-1] != "style" else ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "binary", "regression", "normalised"])
def test_the_report_is_self_contained(kind, tmp_path):
    path = look(outcome(kind), tmp_path / "run")
    text = path.read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    not_for = OTHERS | CLASSIFIES if kind == "regression" else OTHERS
    expected = [shown.title for shown in LENSES if shown.title not in not_for]
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["Results", *expected]
    assert text.count("<svg") == len(expected)
    pictures = sorted((tmp_path / "run" / "figures").iterdir())
    assert len(pictures) == len(expected)
    for picture in pictures:
        with Image.open(picture) as image:
            assert min(image.size) > 100


@pytest.mark.slow
def test_the_page_contains_facts_and_results(tmp_path, quick):
    facts = {
        "recipe": "a <script>",
        "seed": 3,
        "arguments": {"epochs": 2, "widths": [32, 64]},
        "commit": None,
    }
    text = look(outcome("classes"), tmp_path, facts=facts).read_text()
    page = Page(text)
    for said in (
        "a <script>",
        "network <i>",
        "c & d",
        "it was over",
        "epochs",
        "test error",
        "0.2500",
        "177",
        "32, 64",
    ):
        assert said in page.text, said
    assert "<script" not in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert "None" not in page.text
    assert f"<title>{'a &lt;script&gt;'}</title>" in text
    own = look(outcome("classes"), tmp_path, title="My own", facts=facts).read_text()
    assert "<h1>My own</h1>" in own


def test_only_selects_lenses_by_title(tmp_path):
    text = look(outcome("classes"), tmp_path, only=["CONFUS"]).read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text)[1:] == ["Confusion matrix"]
    with pytest.raises(
        ValueError,
        match=r"no lens has a title that contains 'confsion'; did you mean confusion\? "
        "the titles are: Learning curves; Confusion matrix;",
    ):
        look(outcome("classes"), tmp_path, only=["confsion"])


@pytest.mark.slow
def test_the_page_shows_the_numbers_of_the_lenses(tmp_path, quick):
    given = outcome("classes")
    page = Page(look(given, tmp_path).read_text())
    found = explain.calibration(given.model, given.test)
    assert f"{100 * found.error:.2f} %" in page.text
    assert f"{explain.confident_mistakes(given.model, given.test).n_mistakes} of 20" in page.text


@pytest.mark.slow
def test_the_page_has_both_themes(tmp_path, quick):
    text = look(outcome("regression"), tmp_path).read_text()
    body = text[text.index("<body>") :]
    for role in ("ink", "grid", "blue"):
        assert f"--{role}:{LIGHT.roles[role]}" in text
        assert f"--{role}:{DARK.roles[role]}" in text
        assert f"var(--{role})" in body
    assert not any(
        colour in body for colour in LIGHT.roles.values()
    )  # every colour of a figure follows the page
    assert len(set(LIGHT.roles.values())) == len(LIGHT.roles)


@pytest.mark.slow
def test_the_other_lenses_run_if_one_fails(tmp_path, quick):
    @lens("Broken", description="It will not work.")
    def broken(outcome):
        raise ZeroDivisionError("nothing <to> divide by")

    with pytest.warns(
        RuntimeWarning, match="the lens 'Broken' failed: ZeroDivisionError: nothing <to> divide by"
    ):
        text = look(outcome("regression"), tmp_path).read_text()
    assert (
        "This section could not be computed: ZeroDivisionError: nothing &lt;to&gt; divide by"
        in text
    )
    assert text.count("<svg") == len(quick) - 1 - len(EVALUATED)


@pytest.mark.slow
def test_one_registration_adds_a_lens(tmp_path, quick):
    @lens(
        "Twice the curves",
        description="Again.",
        metrics=lambda result: {"epochs": str(result.epochs)},
    )
    def again(outcome):
        return explain.training_curves(outcome.history)

    text = look(outcome("regression"), tmp_path).read_text()
    assert 'href="#twice-the-curves"' in text
    assert "<dt>epochs</dt><dd>2</dd>" in text
    assert (tmp_path / "figures" / "twice-the-curves.png").exists()


@pytest.mark.slow
def test_progress_counts_to_the_end(tmp_path, quick):
    said = []
    look(outcome("classes"), tmp_path, progress=lambda *args: said.append(args))
    assert [done for _, done, _ in said] == list(range(len(quick) + 1))
    assert {total for _, _, total in said} == {len(quick)}
    assert [title for title, _, _ in said] == [shown.title for shown in quick] + ["report.html"]


def test_batch_norms_are_folded_on_training_inputs(tmp_path, lenses):
    seen = []
    lenses[:] = []

    @lens("Spy", description="")
    def spy(outcome):
        seen.append(outcome.model)
        return explain.training_curves(outcome.history)

    given = outcome("normalised")
    look(given, tmp_path)
    alone = seen[0](jnp.asarray(given.test[0][0]))  # one example, which no batch norm would bear
    assert jnp.allclose(
        alone,
        fold_batch_norm(given.model, jnp.asarray(given.train[0]))(jnp.asarray(given.test[0][0])),
        atol=1e-5,
    )


def test_cost_is_bounded():
    xs, ys = subsample((np.arange(10_000), np.arange(10_000)), 1000)
    assert len(xs) == 1000
    assert (xs == ys).all()
    assert xs[0] == 0
    assert xs[-1] == 9999
    assert subsample((jnp.arange(5), jnp.arange(5)), 10)[0].shape == (5,)
    assert jax.tree.leaves(subsample({"x": np.arange(3)}, 2))[0].tolist() == [0, 2]


def test_the_header_shows_the_row_of_the_model(tmp_path, lenses):
    """The last row of the table is that of the model; baselines are above it."""
    lenses[:] = lenses[:1]
    table = {"baseline": {"test error %": 91.25}, "network": {"test error %": 3.5}}
    page = look(replace(outcome("classes"), table=table), tmp_path).read_text()
    head = page[: page.index("Results</h2>")]
    assert "3.5" in head
    assert "91.25" not in head
    assert RESULTS_NOTE in page
    alone = {"network": {"test error %": 3.5}}
    assert RESULTS_NOTE not in look(replace(outcome("classes"), table=alone), tmp_path).read_text()


def test_the_header_mentions_folded_batch_norms(tmp_path, lenses):
    lenses[:] = lenses[:1]
    given = outcome("normalised")
    folded = replace(given, model=fold_batch_norm(given.model, jnp.asarray(given.train[0])))
    for each, reported in ((given, True), (folded, True), (outcome("classes"), False)):
        assert ("folded into affine maps" in look(each, tmp_path).read_text()) == reported


def test_thousands_separators_and_a_single_layer_without_ratio():
    counts = np.array([[1500, 1200], [1100, 200]])
    reported = LENSES[1].metrics(
        explain.predictions.ConfusionMatrix(counts, np.array([0.4, 0.8]), ("a", "b"))
    )
    assert reported["test error"].endswith("of 4,000")
    assert reported["most frequent confusion"] == "a predicted as b, 1,200 times"
    (signal,) = [shown for shown in LENSES if shown.title.startswith("Gradient norms")]
    one = np.array([0.5])
    ones = np.array([0.5, 2.0])
    assert list(
        signal.metrics(explain.signal.GradientNorms(("Recurrent 1",), one, ("LSTM 1",), one))
    ) == ["gradient norm, last layer"]
    assert (
        signal.metrics(explain.signal.GradientNorms(("a", "b"), ones, ("a", "b"), ones))[
            "ratio of first to last"
        ]
        == "0.25"
    )
