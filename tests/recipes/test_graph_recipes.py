"""Recipes on graphs, on small synthetic data in place of the real ones; and, fetched and slow, the
accuracies that the papers print.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.core import predict
from thetax.data import (
    Graph,
    LabelledGraphs,
    LabelledNodes,
    cycle_graph,
    star_graph,
    stochastic_block_model,
)
from thetax.models import MLP
from thetax.recipes import Job, cora, mutag, oversmoothing
from thetax.recipes.engine.outcome import load_outcome, save_outcome
from thetax.recipes.graphs import cora as cora_module
from thetax.recipes.graphs import mutag as mutag_module
from thetax.recipes.graphs import oversmoothing as oversmoothing_module
from thetax.recipes.graphs.cora import keep_best, with_first_layer_decay
from thetax.recipes.graphs.mutag import stratified_folds
from thetax.recipes.graphs.oversmoothing import feature_diversity
from thetax.train import Silent, cross_entropy, descend


@pytest.fixture
def job() -> Job:
    return Job(None, jr.key(0), Silent())


@pytest.fixture
def papers(monkeypatch) -> LabelledNodes:
    """Three communities whose words hint at the class."""
    graph, labels = stochastic_block_model((30, 30, 30), p_in=0.2, p_out=0.01, key=jr.key(0))
    rng = np.random.default_rng(0)
    words = rng.normal(size=(90, 8)) + 0.7 * np.eye(3, 8)[labels]
    order = rng.permutation(90)
    data = LabelledNodes(
        graph.with_nodes(jnp.asarray(words, jnp.float32)),
        labels,
        order[:9],
        order[9:30],
        order[30:],
        ("a", "b", "c"),
        (),
    )
    for module in (cora_module, oversmoothing_module):
        monkeypatch.setattr(module, "load_graph", lambda name, normalise: data)
    return data


def test_a_graph_network_beats_the_words_alone(job, papers, tmp_path):
    outcome = cora(job, networks=("mlp", "gcn"), n_seeds=3, epochs=60)
    table = {name: row["test accuracy %"] for name, row in outcome.table.items()}
    assert list(table) == ["label propagation", "mlp", "gcn"]
    assert table["gcn"] > table["mlp"] + 5
    assert table["gcn"] > 85
    nodes, labels = outcome.test
    predicted = predict(outcome.model, nodes).argmax(axis=1)
    assert 100 * float(jnp.mean(predicted == labels)) > 80
    assert len(outcome.history["train loss"]) == 60
    save_outcome(tmp_path, outcome)
    again = load_outcome(tmp_path)
    np.testing.assert_array_equal(predict(again.model, nodes), predict(outcome.model, nodes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chebyshev", "sage", "gin", "gat"])
def test_every_network_learns(job, papers, name):
    outcome = cora(job, networks=(name,), n_seeds=2, epochs=200)
    assert outcome.table[name]["test accuracy %"] > 75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_seeds": 1}, "n_seeds must be at least 2"),
        ({"epochs": 0}, "epochs must be more than 0"),
        ({"networks": ("gcm",)}, "networks may be mlp, chebyshev, sage, gin, gat, gcn"),
        ({"networks": ()}, "networks may be"),
    ],
)
def test_bad_options_of_cora(job, options, message):
    with pytest.raises(ValueError, match=message):
        cora(job, **options)


def test_the_best_model_so_far_is_kept():
    """Against a loop that remembers it."""
    model = MLP.init(2, 4, 2, key=jr.key(0))
    xs = jr.normal(jr.key(1), (20, 2))
    ys = jr.randint(jr.key(2), (20,), 0, 2)
    train, valid = (xs[:10], ys[:10]), (xs[10:], ys[10:])
    plain = descend(cross_entropy, optax.sgd(3.0))
    kept = keep_best(plain, cross_entropy, valid)
    state, other = kept.init(model), plain.init(model)
    scores, models = [], []
    for key in jr.split(jr.key(3), 12):
        state, _ = kept.step(state, train, key=key)
        other, _ = plain.step(other, train, key=key)
        models.append(other.model)
        scores.append(float(cross_entropy(other.model, valid)))
        best = models[int(np.argmin(scores))]
        assert float(state.score) == pytest.approx(min(scores), rel=1e-5)
        for a, b in zip(jax.tree.leaves(state.model), jax.tree.leaves(best)):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert np.argmin(scores) != len(scores) - 1  # the last is not the best


def test_decay_is_of_the_first_layer_only(papers):
    net = cora_module.at_nodes(cora_module.GNN.init(8, 4, 3, key=jr.key(0)), papers.graph)
    zero = lambda model, batch, *, key=None: jnp.zeros(())
    decay = with_first_layer_decay(zero, strength=0.5, n_leaves=2)
    gradient = jax.grad(decay)(net, None)
    first, second = gradient.model.body.layers
    for got, weights in zip(jax.tree.leaves(first), jax.tree.leaves(net.model.body.layers[0])):
        np.testing.assert_allclose(got, 0.5 * weights, rtol=1e-6)
    assert all(not leaf.any() for leaf in jax.tree.leaves(second))


@pytest.mark.slow
def test_oversmoothing_has_a_row_for_each_cure_and_depth(job, papers):
    outcome = oversmoothing(
        job, depths=(2, 8), cures=("none", "jumping knowledge"), n_seeds=2, epochs=25
    )
    assert list(outcome.table) == [
        f"{cure}, {depth} layers" for cure in ("none", "jumping knowledge") for depth in (2, 8)
    ]
    start = {name: row["energy at the start"] for name, row in outcome.table.items()}
    assert start["none, 8 layers"] < 0.3 * start["none, 2 layers"]
    accuracy = {name: row["test accuracy %"] for name, row in outcome.table.items()}
    assert accuracy["jumping knowledge, 8 layers"] > accuracy["none, 8 layers"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cures": ("magic",)}, "cures may be none, DropEdge"),
        ({"depths": (0,)}, "depths are numbers of layers, at least 1"),
        ({"n_seeds": 0}, "n_seeds must be more than 0"),
    ],
)
def test_bad_options_of_oversmoothing(job, options, message):
    with pytest.raises(ValueError, match=message):
        oversmoothing(job, **options)


def test_feature_diversity_is_that_of_the_loop():
    graph, _ = stochastic_block_model((5, 6), p_in=0.6, p_out=0.2, key=jr.key(0))
    x = jr.normal(jr.key(1), (11, 3))
    A = np.asarray(graph.adjacency()) + np.eye(11)
    d = A.sum(axis=1)
    energy = sum(
        A[i, j] * np.sum((x[i] / np.sqrt(d[i]) - x[j] / np.sqrt(d[j])) ** 2) / 2
        for i in range(11)
        for j in range(11)
    )
    np.testing.assert_allclose(feature_diversity(graph, x), energy / np.sum(x**2), rtol=1e-5)
    np.testing.assert_allclose(feature_diversity(graph, 7 * x), energy / np.sum(x**2), rtol=1e-5)


@pytest.fixture
def molecules(monkeypatch) -> LabelledGraphs:
    """Cycles and stars, which the numbers of atoms of each kind do not tell apart."""
    rng = np.random.default_rng(0)
    graphs, labels = [], []
    for i in range(40):
        n = 5 + i % 4
        shape = (cycle_graph, star_graph)[i % 2](n)
        pairs = np.stack([shape.senders, shape.receivers], axis=1)
        atoms = np.eye(2, dtype=np.float32)[rng.integers(0, 2, n)]
        bonds = np.ones((len(pairs), 4), np.float32)
        graphs.append(Graph.from_edges(pairs, atoms, undirected=False, edges=bonds))
        labels.append(i % 2)
    data = LabelledGraphs(graphs, np.array(labels, np.int32), ("cycle", "star"))
    monkeypatch.setattr(mutag_module, "load_graphs", lambda name: data)
    return data


def test_graph_classification_by_cross_validation(job, molecules):
    outcome = mutag(job, n_folds=4, epochs=15, hidden=8, depth=2, batch_size=10)
    accuracy = {name: row["accuracy %"] for name, row in outcome.table.items()}
    assert list(accuracy) == ["majority class", "numbers of atoms", "WL kernel", "GIN"]
    assert accuracy["GIN"] > 90
    assert accuracy["WL kernel"] > 90
    assert accuracy["numbers of atoms"] < 80
    assert outcome.test[0].nodes.shape[0] == 10


@pytest.mark.parametrize(("n_folds", "seed"), [(2, 0), (10, 1), (7, 2)])
def test_folds_are_stratified(n_folds, seed):
    labels = np.random.default_rng(seed).integers(0, 3, 61)
    folds = stratified_folds(labels, n_folds, key=jr.key(seed))
    sizes = np.bincount(folds, minlength=n_folds)
    assert sizes.max() - sizes.min() <= 1
    for k in range(3):
        counts = np.bincount(folds[labels == k], minlength=n_folds)
        assert counts.max() - counts.min() <= 1


def test_bad_options_of_mutag(job):
    with pytest.raises(ValueError, match="n_folds must be at least 2; got 1"):
        mutag(job, n_folds=1)
    with pytest.raises(ValueError, match="hidden must be more than 0"):
        mutag(job, hidden=0)


TARGETS = [
    ("cora", "gcn", 81.0),
    ("cora", "gat", 82.0),
    ("citeseer", "gcn", 69.5),
    ("pubmed", "gcn", 78.0),
]


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(("data", "network", "least"), TARGETS)
def test_accuracies_of_the_papers(job, data, network, least):
    """Ten seeds; the standard error of their mean is about 0.3."""
    outcome = cora(job, data=data, networks=(network,))
    assert outcome.table[network]["test accuracy %"] > least


@pytest.mark.network
@pytest.mark.slow
def test_the_accuracy_on_molecules(job):
    outcome = mutag(job)
    assert outcome.table["GIN"]["accuracy %"] > 85
    assert outcome.table["WL kernel"]["accuracy %"] > 80
