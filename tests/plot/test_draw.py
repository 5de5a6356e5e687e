"""Every result is drawn, in both themes, without a display and without global state."""

import subprocess
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure

from thetax import attack, certify, explain
from thetax.explain.loss_surface.curvature import (
    Curvature,
    HessianSpectrum,
    HessianTrace,
    Sharpness,
)
from thetax.models import MLP, Perceptron
from thetax.plot import DARK, LIGHT, as_images, draw, drawable_types, register_drawing

grid = np.linspace(-1, 5, 512)
spectrum = HessianSpectrum(
    *(np.array([4.0, 1.0]), np.zeros(2), np.array([-0.1, 0.0]), np.zeros(2)),
    grid,
    np.exp(-(grid**2)),
    1000,
)


def worst(x, classes=("cat", "dog")):
    m = len(x)
    ints = np.arange(m)
    share = np.linspace(0.9, 0.5, m)
    return explain.predictions.ConfidentMistakes(
        ints, x, ints % 2, (ints + 1) % 2, share, 1 - share, m, 50, classes
    )


def depth(layers):
    names = tuple(f"Linear {i}" for i in range(layers))
    values = np.linspace(0.5, 2, layers)
    edges = np.tile(np.linspace(-1, 1, 11), (layers, 1))
    return {
        "activations": explain.signal.ActivationStatistics(
            names, values, values, values / 4, values / 8
        ),
        "gradients": explain.signal.GradientNorms(names, values, names, 0 * values),
        "weights": explain.signal.WeightStatistics(
            names, (9,) * layers, values, values, values, values, edges, np.ones((layers, 10)) / 2
        ),
    }


def remembered(sites, names=("Hebb", "projection"), right=False):
    stored = np.random.default_rng(0).choice([-1.0, 1.0], (12, sites))
    answers = np.stack([stored if right else stored[::-1]] * len(names))
    return explain.associative_memory.MemoryRecall(
        answers, np.mean(answers * stored, axis=2), stored, -stored, names
    )


side = np.linspace(-1, 1, 9)
steep = 0.01 + side[:, None] ** 2 + 9 * side**2
gaps = {"descent": np.append(0.9 ** np.arange(30), 0.0), "Nesterov": 1 / np.arange(1.0, 32) ** 2}
decays = {name: explain.fit_convergence_rate(gap) for name, gap in gaps.items()}
bends = explain.loss_surface.Smoothness(4.0, np.array([1.0, 4.0]))
square = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
halves = np.where(square[:, 0] > 0, 1, -1)
net = MLP.init(2, 5, 2, key=jr.key(0))
confused = explain.predictions.ConfusionMatrix(
    np.eye(3, dtype=int) + 2, np.full(3, 2 / 3), ("a", "b", "c")
)
scores = np.array([np.nan, 0.3, 0.9])
believed = explain.predictions.MCDropout(
    *(
        np.full((9, 3), 1 / 3),
        np.full((9, 3), 0.1),
        np.linspace(0, 1.1, 9),
        np.linspace(0, 0.4, 9),
        np.zeros(9),
    ),
    50,
)
drifts = np.array([[0.0, 0.2], [0.0, 0.1], [0.0, 0.5], [0.3, 0.6], [0.0, 1.0]])
like = np.exp(-np.abs(np.subtract.outer(square[:, 0], square[:, 0])).astype(np.float64))
RESULTS = {
    "curves": explain.training_curves(
        {"train loss": np.array([5.0, 0.1]), "valid loss": np.array([4.0, np.nan])}
    ),
    "one epoch": explain.training_curves({"train loss": np.ones(1)}),
    "confusion": confused,
    "many classes": explain.predictions.ConfusionMatrix(
        np.ones((60, 60), int), np.full(60, 0.9), tuple(f"class number {i}" for i in range(60))
    ),
    "calibration": explain.predictions.Calibration(
        0.1, 0.2, 0.3, scores, scores, np.array([0, 5, 9])
    ),
    "pictures": worst(np.zeros((5, 64))),
    "colour": worst(
        np.random.default_rng(0).normal(size=(2, 3, 6, 6)), ("a very long name of a class", "dog")
    ),
    "features": worst(np.zeros((4, 3))),
    "no mistakes": worst(np.zeros((0, 64))),
    "spectrum": spectrum,
    "curvature": Curvature(
        Sharpness(4.0, 0.0, 0.1, 0.1, 0.0, 1.0, 0.05), HessianTrace(3.0, 0.1), spectrum
    ),
    "recall": remembered(64),
    "recall of no pictures": remembered(7, names=("Hebb",), right=True),
    "capacity": explain.associative_memory.MemoryCapacity(
        np.array([1.0, 0.4]), np.array([0.1, 0.2]), np.array([[1.0, 1.0], [0.2, 0.6]]), 500
    ),
    "landscape": explain.loss_surface.LossLandscape(steep, side, side, 0.01),
    "flat landscape with a path": explain.loss_surface.LossLandscape(
        np.ones((9, 9)), side, side, 1.0, path=np.array([[-0.5, 0.5], [0.0, 0.0]])
    ),
    "landscape with a cliff": explain.loss_surface.LossLandscape(
        np.where(steep > 5, np.inf, steep), side, side, 0.01
    ),
    "rates": explain.loss_surface.ConvergenceRates(
        decays,
        gaps,
        explain.convergence_bounds(
            steps=30, smoothness=1.0, distance=1.0, gap=1.0, strong_convexity=0.1
        ),
    ),
    "powers": explain.loss_surface.ConvergenceRates(
        {"Nesterov": decays["Nesterov"]}, {"Nesterov": gaps["Nesterov"]}
    ),
    "trajectory": explain.training_convergence([2.0, 1.0, 0.6, 0.3], bends),
    "two epochs": explain.training_convergence([1.0, 0.5], bends),
    "smoothness": bends,
    "regions": explain.enumerate_regions(net, explain.input_plane(-1.0, 1.0)),
    "boundary": explain.decision_boundary(
        net, explain.input_plane(-1.0, 1.0), classes=("a", "b"), grid=20
    ),
    "margins": explain.margins(Perceptron(jnp.array([1.0, 0.1]), jnp.array(0.0)), (square, halves)),
    "cone": explain.version_cone(square[:3], halves[:3]),
    "minimax": explain.minimax_approximation(
        jnp.square, lambda x: jnp.stack([x**0, x]), low=-1.0, high=1.0, n_points=21
    ),
    "dominance": explain.loss_surface.GradientDominance(0.5, np.array([0.5, np.inf, 2.0])),
    "dropout belief": believed,
    "dropout penalty": explain.predictions.DropoutPenalty(0.3, 0.02, 0.25, 0.01, 1.0, 50),
    "doubt": explain.predictions.DropoutUncertainty(
        believed,
        np.arange(9) % 3,
        np.array([8, 7]),
        np.zeros((2, 64)),
        ("a", "b", "a very long name of a class"),
    ),
    "shrinkage": explain.signal.EffectiveParameters(
        np.array([0.9, 0.5]), np.array([9.0, 1.0]), np.zeros(2), 1.4, 0.1, 0.0, 30, 1.0, None, None
    ),
    "importance": explain.predictions.PermutationImportance(
        np.array([0.1, 0.0, 0.3]),
        np.array([0.01, 0.0, 0.02]),
        0.05,
        ("money", "a feature of a long name", "!"),
    ),
    "cost": explain.signal.DerivativeCost(
        *[explain.signal.PassCost(1000 * n, 900 * n, 1e-3 * n) for n in (1, 3, 2)], 600, 1
    ),
    "critical": explain.critical_points(
        lambda t: t**4 / 4 - t**2 / 2 + t / 10, low=-2.0, high=2.0, n_points=101
    ),
    "wiring": explain.network_graph(MLP.init(30, 4, 2, key=jr.key(0))),
    "convexity": explain.loss_surface.Convexity(
        0.3, np.array([0.3, -0.1]), side[4:], np.square(side[4:])
    ),
    "filters": explain.attribution.Filters(
        np.linspace(-1, 1, 90).reshape(10, 1, 3, 3), "Convolution 1"
    ),
    "feature maps": explain.attribution.FeatureMaps(
        (np.ones((9, 8, 8)), np.ones((4, 4, 4))),
        ("Convolution 1", "Convolution 12"),
        np.zeros((1, 8, 8)),
    ),
    "saliency": explain.attribution.Saliency(
        np.ones((5, 64)), np.zeros((5, 64)), np.arange(5) % 2, ("cat", "a very long name")
    ),
    "equivariance": explain.attribution.Equivariance(
        *np.ones((2, 3, 2)),
        *np.ones((2, 2)),
        np.array([1, 2]),
        np.array([1, 2, 4]),
        ("relu 1", "relu 2", "MaxPool 3"),
    ),
    "through time": explain.signal.GradientsThroughTime(
        *np.geomspace(1, 1e-3, 30).reshape(3, 2, 5), np.ones(5), 9, "Elman 1"
    ),
    "eigenvalues": explain.signal.RecurrenceEigenvalues(np.exp(1j * side) * 0.9, "the matrix U"),
    "speech": explain.generation.TextSamples(
        ("so it was", "and so"), 0.7, np.array([1.0, 2.0, 4.0]), np.array([4.0, 2.5, 2.0])
    ),
    "translations": explain.generation.Translations(
        ("so",), ("also",), ("so",), np.array([0.5, 0.2, 0.1, 0.0])
    ),
    "attention": explain.attribution.AttentionMaps(
        np.full((2, 2, 3, 3), 1 / 3), ("a", "word", "seen")
    ),
    "token saliency": explain.attribution.TokenSaliency(
        np.ones(2), np.array([1.0, -1.0]), ("good", "bad"), "class"
    ),
    "embedding map": explain.attribution.EmbeddingMap(
        np.eye(3, 2), ("a", "b", "c"), np.array([0.6, 0.3])
    ),
    "alignment": explain.attribution.AttentionAlignment(
        np.eye(3, 4), ("a", "word", "of", "source"), ("and", "its", "target")
    ),
    "tangent spectrum": explain.TangentSpectrum(
        np.geomspace(10, 0.01, 20), np.full(20, 0.05), 0.4, 3, 0.1
    ),
    "flat tangent spectrum": explain.TangentSpectrum(np.ones(5), np.full(5, 0.2), 0.4, 1, None),
    "drift": explain.KernelDrift(
        *drifts, like, like**2, halves, ("Linear 1", "Linear 2"), np.array([0.1, np.inf])
    ),
    "drift of numbers, along a way": explain.KernelDrift(
        *np.linspace(0, 0.3, 20).reshape(4, 5),
        np.arange(5.0),
        like,
        like,
        square[:, 0],
        ("Linear 1",),
        np.ones(1),
    ),
    "drift of many layers": explain.KernelDrift(
        *drifts, like, like, halves, tuple(f"Linear {i}" for i in range(90)), np.linspace(0, 1, 90)
    ),
    "kernel map": explain.KernelMap(
        like,
        np.array([[0.9, 0.1], [0.1, np.nan]]),
        np.arange(20) // 19,
        ("cat", "a very long name of a class"),
    ),
    "kernel map of many classes": explain.KernelMap(
        like, np.ones((60, 60)), np.arange(20), tuple(f"class number {i}" for i in range(60))
    ),
    "laziness": explain.LinearisedComparison(
        np.array([[0.9, 0.3], [0.9, 0.2]]),
        np.array([[1.0, 0.1], [1.0, np.nan]]),
        np.array([0.0, 0.4]),
        np.array([0, 50]),
        30,
        0.1,
        True,
    ),
    "laziness of numbers": explain.LinearisedComparison(
        *np.ones((2, 2, 3)), np.ones(3), np.array([0, 1, 9]), 30, 0.1, False
    ),
    "intervals": explain.interval_coverage(np.zeros(3), np.ones(3), np.array([0.1, 3.0, -0.4])),
    "widths": explain.WidthScaling(
        *np.geomspace(1, 0.01, 18).reshape(3, 3, 2), np.array([8, 32, 128])
    ),
    "wide beliefs": explain.InfiniteWidthComparison(
        np.linspace(-1, 1, 60).reshape(2, 10, 3), np.linspace(1, 2, 20).reshape(2, 10)
    ),
    "certificates": certify.CertifiedRadii(
        np.linspace(0, 1.2, 9), np.array([0.5, 1.0]), np.array([0.9, 0.6]), 1.3
    ),
    "disguise": attack.AdversarialExample(
        np.full((3, 6, 6), 9, np.uint8),
        np.full((3, 6, 6), 8, np.uint8),
        ("cat", "a very long name"),
        (0.9, 0.4),
    ),
    "node predictions": explain.graphs.NodePredictions(
        np.array([0, 1, 2]),
        np.array([0, 0, -1]),
        np.full(3, 0.9),
        np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]),
        np.array([1, 0, 2, 1]),
        np.array([0, 1, 1, 2]),
        ("cat", "dog", "a very long name of a class"),
    ),
    "graph smoothness": explain.graphs.FeatureSmoothness(
        ("input", *(f"GCN {i}" for i in range(30))),
        np.geomspace(1, 1e-4, 31),
        np.linspace(-0.1, 1, 31),
    ),
    "flat graph smoothness": explain.graphs.FeatureSmoothness(
        ("input", "a layer of a long name 1"), np.zeros(2), np.ones(2)
    ),
    "node influence": explain.graphs.NodeInfluence(
        np.array([[1.0, 0.1, 0.0, 0.0]]), np.array([[0, 1, 2, -1]]), np.zeros(1, int)
    ),
    "graph separation": explain.graphs.GraphSeparation(
        np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0.0]]),
        np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]], bool),
        "1-WL",
        ("a", "b", "a graph of a long name"),
    ),
    "separation of many graphs": explain.graphs.GraphSeparation(
        np.zeros((50, 50)), ~np.eye(50, dtype=bool), "2-FWL", tuple("abcde" * 10)
    ),
    "edge attention": explain.graphs.EdgeAttentionMaps(
        ("GAT 1", "GATv2 1"),
        (np.ones((4, 2)) / 2, np.array([[1.0], [0.5], [0.5], [1.0]])),
        (np.ones((3, 2)) / 2, np.zeros((3, 1))),
        np.array([1, 0, 2, 1]),
        np.array([0, 1, 1, 2]),
    ),
    "graph attribution": explain.graphs.GraphAttribution(
        *np.linspace(-1, 1, 6).reshape(2, 3),
        *np.linspace(-1, 1, 8).reshape(2, 4),
        np.array([1, 0, 2, 1]),
        np.array([0, 1, 1, 2]),
        1,
        2,
        0.25,
    ),
    "attribution without edges": explain.graphs.GraphAttribution(
        *np.zeros((2, 400)), *np.zeros((2, 0)), *np.zeros((2, 0), int), 0, None, 0.0
    ),
    **depth(3),
    **{f"deep {name}": result for name, result in depth(90).items()},
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn(name, theme):
    figure = draw(RESULTS[name], theme=theme)
    assert isinstance(figure, Figure)
    # a label that cannot be laid out warns, and a warning is an error
    figure.draw_without_rendering()
    assert figure.get_facecolor()[:3] == pytest.approx(
        [int(theme.paper[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )


NOT_DRAWN = {
    "Breakpoints1D",
    "CapturedRecurrence",
    "ConvergenceRate",
    "DualActivation",
    "Eigenpairs",
    "EnsemblePrediction",
    "HessianTrace",
    "InfiniteWidthKernel",
    "InfiniteWidthLimit",
    "InputPlane",
    "KernelEnsemble",
    "KernelGradientDescent",
    "KernelGradientFlow",
    "KernelPlan",
    "LinearSolution",
    "Linearised",
    "PassCost",
    "ReceptiveField",
    "RitzValues",
    "Sharpness",
    "TangentKernel",
    "TangentOperator",
    "TrajectoryPlane",
    "Tridiagonal",
    "UniformDistance",
    "VersionVolume",
}


def test_there_is_a_drawing_for_every_result():
    modules = [explain, *(part for part in vars(explain).values() if isinstance(part, ModuleType))]
    public = [value for module in modules for value in vars(module).values()]
    results = {
        value.__name__
        for value in public
        if isinstance(value, type)
        and value.__module__.startswith("thetax.explain")
        and not value.__name__.startswith("_")
        and not issubclass(value, Exception)
    } | {"AdversarialExample", "CertifiedRadii"}
    assert results - NOT_DRAWN == set(drawable_types()) & results
    assert {type(result).__name__ for result in RESULTS.values()} == set(drawable_types()) & results


@pytest.mark.slow
def test_labels_stay_inside_the_figure():
    for name, result in RESULTS.items():
        figure = draw(result)
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert box.x0 > -0.02, name
        assert box.x1 < figure.get_figwidth() + 0.02, name


def test_the_figure_holds_the_numbers():
    line = draw(RESULTS["curves"]).axes[0].lines[0]
    assert line.get_ydata().tolist() == [5.0, 0.1]
    cells = [text.get_text() for text in draw(confused).axes[0].texts]
    assert sorted(cells) == ["2"] * 6 + ["3"] * 3
    points = draw(RESULTS["calibration"]).axes[0].collections[-1].get_offsets()
    assert points.tolist() == [[0.3, 0.3], [0.9, 0.9]]


def test_standard_deviations_are_shown_beside_the_histograms():
    figure = draw(depth(3)["weights"])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [note.get_text() for note in axes.texts] == ["σ 0.5", "σ 1.25", "σ 2"]
    for note in axes.texts:
        box = note.get_window_extent()
        assert axes.bbox.x1 < box.x0 < box.x1 < figure.bbox.x1


def test_as_images_recognises_images():
    x = np.arange(2 * 3 * 6 * 6.0).reshape(2, 3, 6, 6)
    assert as_images(x)[1, 2, 3].tolist() == x[1, :, 2, 3].tolist()
    assert as_images(np.zeros((2, 1, 6, 6))).shape == (2, 6, 6)
    assert as_images(np.zeros((2, 16))) is None
    assert as_images(np.zeros((2, 4, 6, 6))) is None


def test_an_unknown_type_raises_until_it_is_registered():
    class Answer(float): ...

    with pytest.raises(
        TypeError,
        match=r"is registered for Answer; the known types are ActivationStat.*WidthScaling",
    ):
        draw(Answer(42))
    register_drawing(Answer)(lambda result, theme: Figure())
    assert isinstance(draw(Answer(42)), Figure)


def test_a_real_network_end_to_end():
    net = MLP.init(4, 8, 3, key=jr.key(0))
    xs = jr.normal(jr.key(1), (30, 4))
    draw(
        explain.calibration(net, (xs, jnp.argmax(jax.vmap(net)(xs), axis=1)))
    ).draw_without_rendering()


def test_explain_does_not_import_matplotlib_and_plot_not_pyplot():
    code = (
        "import sys, thetax.explain; assert 'matplotlib' not in sys.modules; import thetax.plot, "
        "thetax.report;"
    )
    code += "assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
