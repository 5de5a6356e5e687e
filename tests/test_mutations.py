"""Mutation tests: formulas of the library with one sign, factor or index changed, which a test of
the quick run must detect.

The function gets the code of the changed formula while its doctest or a test runs, which must fail
by a comparison, not by an exception. `tests/mutate.py` changes formulas at random; mutants that no
test detected are kept here.
"""

import doctest
import functools
import importlib.util
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest
from mutants import ROOT, put


class Break(NamedTuple):
    """What is replaced in which function, and what must notice: a test, with its arguments, or the
    function's own example.
    """

    function: str
    right: str
    wrong: str
    by: str = ""
    given: tuple[Any, ...] = ()


BREAKS = [
    Break("models.linear.separator.signed_distance", "y * model.score(x)", "-y * model.score(x)"),
    Break(
        "models.linear.perceptron._update",
        "jnp.sum(v * z) > 0",
        "jnp.sum(v * z) >= 0",
        "models/linear/test_perceptron.py::test_a_tie_is_a_mistake",
    ),
    Break("certify.capacity.cover_count", "comb(n - 1, i)", "comb(n, i)"),
    Break("explain.associative_memory.crosstalk", "- (n - 1) * X", "- n * X"),
    Break("models.associative_memory.hopfield.hebb", "dtype=X.dtype)) / d", "dtype=X.dtype)) / n"),
    Break(
        "models.linear.regression.ridge",
        "centre_y - W @ centre_x",
        "centre_y + W @ centre_x",
        "models/linear/test_regression.py::test_ridge_in_numpy",
    ),
    Break(
        "train.objectives.loss.log_loss",
        "jax.nn.logsumexp(z) - jnp",
        "jax.nn.logsumexp(z) + jnp",
        "train/objectives/test_loss.py::test_log_loss_in_numpy",
    ),
    Break("models.constructive.approximate.interpolating_network", "-knots[:-1]", "-knots[1:]"),
    Break("certify.region_bounds.zaslavsky_bound", "range(min(m, n) + 1)", "range(min(m, n))"),
    Break("train.optimisers.steps.nesterov", "* (new - old)", "* (old - new)"),
    Break(
        "train.optimisers.steps.uncorrected_adam",
        "(1 - beta2) * jnp.square(g)",
        "(1 + beta2) * jnp.square(g)",
    ),
    Break(
        "explain.signal.effective_parameters.weight_decay_factor",
        "lam + strength, out",
        "lam + 2 * strength, out",
    ),
    Break(
        "layers.dropout.apply_mask", "jnp.asarray(1 - p, x.dtype)", "jnp.asarray(1 + p, x.dtype)"
    ),
    Break("train.objectives.distillation.distillation_loss", "return -jnp.vdot", "return jnp.vdot"),
    Break(
        "explain.tangent_kernel.kernel_eigenmodes.kernel_eigenmodes",
        "V.T @ (ys - f)",
        "V.T @ (ys + f)",
        "explain/tangent_kernel/test_kernel_eigenmodes.py::test_ridge_along_the_modes_is_the_linear_system",
    ),
    Break(
        "attack.gradient.affine.distances",
        "gaps / jnp.where",
        "-gaps / jnp.where",
        "attack/gradient/test_affine.py::test_distances_in_numpy",
    ),
    Break("threat.norm.p_steepest", "** (q - 1)", "** q"),
    Break(
        "attack.gradient.pgd.l1_normalise",
        "return g / jnp",
        "return -g / jnp",
        "attack/gradient/test_pgd.py::test_the_unit_of_a_gradient_has_its_signs",
    ),
    Break(
        "models.linear.deep_linear.layer_imbalance", "- before @ before.T", "+ before @ before.T"
    ),
    Break(
        "models.linear.pca.principal_components", "C = Ut[:n_components]", "C = Ut[-n_components:]"
    ),
    Break(
        "layers.recurrent.state_space.LRU.init",
        "jnp.sqrt(1 - r**2)",
        "jnp.sqrt(1 - r)",
        "layers/recurrent/test_state_space.py::test_white_noise_gives_a_state_of_variance_one",
    ),
    Break(
        "attack.gradient.deepfool.DeepFool.loop",
        "(1 + self.overshoot) * eta",
        "(1 + 2 * self.overshoot) * eta",
        "attack/gradient/test_deepfool.py::test_the_overshoot_is_a_share_of_the_distance",
    ),
    Break(
        "train.objectives.distillation.distil",
        "temperature**2 * soft",
        "temperature * soft",
        "train/objectives/test_distillation.py::test_the_objective_with_labels_in_numpy",
    ),
    Break(
        "bayes.gaussian_process.gaussian_log_density.log_density_gradient",
        "dtype=L.dtype) / 2",
        "dtype=L.dtype)",
    ),
    Break(
        "layers.recurrent.lstm_gru.LSTM.step",
        "jax.nn.sigmoid(a_i)",
        "jax.nn.sigmoid(-a_i)",
        "layers/recurrent/test_lstm_gru.py::test_the_gates_of_an_lstm",
        (False,),
    ),
    Break(
        "models.associative_memory.hopfield.Hebbian.energy",
        "/ (2 * self.sites)",
        "* (2 * self.sites)",
        "models/associative_memory/test_hopfield.py::test_the_rules_in_numpy",
    ),
    Break(
        "bayes.gaussian_process.binary_classifier.newton_maximise",
        "state.steps < max_steps",
        "state.steps <= max_steps",
        "bayes/gaussian_process/test_binary_classifier.py::test_newton_stops_after_max_steps_or_without_increase",
    ),
    Break(
        "explain.tangent_kernel.kernel_map._class_means",
        "where=count > 0",
        "where=count > 1",
        "explain/tangent_kernel/test_kernel_map.py::test_one_pair_has_a_mean_and_none_has_not",
    ),
    Break(
        "explain.generation.text_samples._surprisal",
        "-log_p / jnp.log",
        "log_p / jnp.log",
        "explain/generation/test_text_samples.py::test_surprisal_at_every_target",
    ),
    Break(
        "models.vision.mixer.MixerBlock.__call__",
        "return U + jax.vmap",
        "return jax.vmap",
        "models/vision/test_mixer.py::test_a_block_of_given_weights_is_its_equations",
    ),
    Break(
        "models.interop.hf_config.HFConfig.classes",
        '"num_labels", 2',
        '"num_labels", 3',
        "models/interop/test_hf_config.py::test_how_many_classes_there_are",
    ),
    Break(
        "certify.bounds.linear_relaxations.relax_product",
        "-x.low * y.high",
        "-x.high * y.high",
        "certify/bounds/test_linear_bounds.py::test_the_planes_of_a_product_touch_it_at_the_edges",
        (-1.0, 2.0, -2.0, 1.5),
    ),
]


@pytest.fixture
def fresh():
    """Programs compiled from a changed formula must not be reused by another test, nor the
    reverse.
    """
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("breaking", BREAKS, ids=lambda breaking: breaking.function)
def test_a_test_notices(breaking):
    module, name = find(breaking.function)
    source = Path(module.__file__).read_bytes()
    start = source.index(f"def {name.rpartition('.')[2]}(".encode())
    head = source[:start]
    body = source[start:]
    assert breaking.right.encode() in body, "the formula has moved: name it anew"
    broken = head + body.replace(breaking.right.encode(), breaking.wrong.encode(), 1)
    put(module, name, broken)
    try:
        notices(breaking, module, name)
    finally:
        put(module, name, source)


def find(function: str):
    """The module of a function, and its name in it."""
    parts = function.split(".")
    files = [ROOT.joinpath("thetax", *parts[:n]).with_suffix(".py") for n in range(1, len(parts))]
    n = 1 + next(i for i, file in enumerate(files) if file.is_file())
    return import_module(".".join(["thetax", *parts[:n]])), ".".join(parts[n:])


def notices(breaking: Break, module: Any, name: str) -> None:
    """Fails unless the doctest or the test fails by a comparison."""
    file, _, test = breaking.by.partition("::")
    if test:
        tests = imported(file)
        function = getattr(tests, test)
        marks = [*getattr(function, "pytestmark", []), *as_list(getattr(tests, "pytestmark", []))]
        wide = any("x64" in mark.args for mark in marks)
        with jax.enable_x64(True) if wide else nullcontext(), pytest.raises(AssertionError):
            function(*breaking.given)
    else:
        thing = functools.reduce(getattr, name.split("."), module)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        (example,) = doctest.DocTestFinder(recurse=False).find(
            thing, name, globs=dict(vars(module))
        )
        seen = []
        outcome = doctest.DocTestRunner(optionflags=flags).run(example, out=seen.append)
        assert outcome.failed, "its own example does not notice"
        assert "Traceback" not in "".join(seen), "it must fail by what it says, not by an error"


def as_list(marks: Any) -> list:
    return marks if isinstance(marks, list) else [marks]


@functools.cache
def imported(file: str) -> Any:
    """A test file as a module."""
    spec = importlib.util.spec_from_file_location(
        f"broken_{file[:-3].replace('/', '_')}", ROOT / "tests" / file
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
