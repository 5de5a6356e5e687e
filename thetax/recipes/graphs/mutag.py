"""Graph classification of molecules: graph isomorphism networks beside the Weisfeiler-Leman kernel,
by ten-fold cross-validation (§7.4).
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Int, PRNGKeyArray

from ...core import Batch
from ...data import LabelledGraphs, load_graphs, stack_graphs
from ...layers import GIN
from ...models import GNN, wl_kernel
from ...train import cross_entropy, descend, error_rate, fit
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

SOFT_MARGINS = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of the support vector machines to choose from
WL_ROUNDS = (1, 2, 3, 4)
N_BONDS = 4  # kinds of bonds, one-hot


def stratified_folds(
    labels: Int[np.ndarray, " n"], n_folds: int, *, key: PRNGKeyArray
) -> Int[np.ndarray, " n"]:
    """The fold of each example, with the classes in the same proportions in all.

    >>> folds = stratified_folds(np.array([0] * 6 + [1] * 4), 2, key=jr.key(0))
    >>> np.bincount(folds[:6]).tolist(), np.bincount(folds[6:]).tolist()
    ([3, 3], [2, 2])
    """
    order = np.asarray(jr.permutation(key, len(labels)))
    by_class = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[by_class] = np.arange(len(labels)) % n_folds
    return folds


@recipe
def mutag(
    job: Job,
    *,
    hidden: int = 32,
    depth: int = 3,
    dropout: float = 0.0,
    learning_rate: float = 5e-3,
    epochs: int = 100,
    batch_size: int = 32,
    n_folds: int = 10,
) -> Outcome:
    """Which of 188 molecules are mutagenic, by a graph isomorphism network.

    The mean accuracy of a cross-validation at the last epoch; nothing is chosen on a test fold.
    Beside it: the majority class, logistic regression on the numbers of atoms of each kind, and
    support vector machines with the Weisfeiler-Leman subtree kernel, whose rounds and C are chosen
    by a cross-validation inside the training folds. The model of the outcome is that of the last
    fold.

    Parameters
    ----------
    hidden
        Features of each layer.
    depth
        Graph layers; their outputs are concatenated (jumping knowledge) and summed over the nodes.
    dropout
        Dropout before every layer but the first.
    learning_rate
        Learning rate of Adam; a cosine schedule takes it to zero.
    n_folds
        Folds of the cross-validation.
    """
    check_positive(
        hidden=hidden,
        depth=depth,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2; got {n_folds}.")
    key_folds, key_init, key_fit = jr.split(job.key, 3)
    job.note("loading mutag")
    molecules = load_graphs("mutag")
    folds = stratified_folds(molecules.labels, n_folds, key=key_folds)
    table = {name: _row(rates) for name, rates in _baselines(job, molecules, folds).items()}
    xs = stack_graphs(molecules.graphs)
    ys = jnp.asarray(molecules.labels)
    n_train = len(folds) - int(np.bincount(folds).max())
    schedule = optax.cosine_decay_schedule(learning_rate, epochs * max(1, n_train // batch_size))
    optimiser = optax.adam(schedule)
    iteration = descend(cross_entropy, optimiser)
    init = partial(
        GNN.init,
        xs.nodes.shape[-1],
        hidden,
        len(molecules.classes),
        depth=depth,
        layer=partial(GIN.init, edge_features=N_BONDS),
        dropout=(0.0, *(dropout,) * (depth - 1)),
        norm="graph",
        jumping="concat",
        readout="sum",
    )
    accuracies = []
    seconds = 0.0
    for fold in range(n_folds):
        job.note(f"GIN, fold {fold + 1} of {n_folds}")
        train, test = (
            _select((xs, ys), np.flatnonzero(chosen)) for chosen in (folds != fold, folds == fold)
        )
        result = fit(
            iteration,
            init(key=jr.fold_in(key_init, fold)),
            train,
            epochs=epochs,
            batch_size=batch_size,
            key=jr.fold_in(key_fit, fold),
            run=job.part(f"fold-{fold}"),
            progress=job.progress,
        )
        accuracies.append(100 * (1 - float(error_rate(result.model, test))))
        seconds += result.seconds
    table["GIN"] = _row(accuracies)
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=cross_entropy,
        classes=molecules.classes,
        table=table,
        seconds=seconds,
        start=result.start,
    )


def _select(batch: Batch, rows: np.ndarray) -> Batch:
    return jax.tree.map(lambda a: a[rows], batch)


def _row(accuracies: list[float]) -> dict[str, float]:
    return {
        "accuracy %": float(np.mean(accuracies)),
        "standard error": float(np.std(accuracies, ddof=1) / np.sqrt(len(accuracies))),
    }


def _baselines(
    job: Job, molecules: LabelledGraphs, folds: Int[np.ndarray, " n"]
) -> dict[str, list[float]]:
    """The accuracies of the baselines in percent, by fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    job.note("majority class, numbers of atoms, Weisfeiler-Leman kernel")
    labels = molecules.labels
    atoms = np.stack([np.asarray(graph.nodes).sum(axis=0) for graph in molecules.graphs])
    kernels = [
        wl_kernel(molecules.graphs, rounds=rounds, node_features=True, normalise=True)
        for rounds in WL_ROUNDS
    ]
    rates: dict[str, list[float]] = {"majority class": [], "numbers of atoms": [], "WL kernel": []}
    for fold in range(folds.max() + 1):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        score = lambda predicted, test=test: 100 * float(np.mean(predicted == labels[test]))
        rates["majority class"].append(score(np.bincount(labels[train]).argmax()))
        linear = LogisticRegression(max_iter=5000).fit(atoms[train], labels[train])
        rates["numbers of atoms"].append(score(linear.predict(atoms[test])))
        _, kernel, C = max(
            (_inner_score(kernel, labels, folds, train, C), -i, C)
            for i, kernel in enumerate(kernels)
            for C in SOFT_MARGINS
        )
        machine = SVC(kernel="precomputed", C=C)
        machine.fit(kernels[-kernel][np.ix_(train, train)], labels[train])
        rates["WL kernel"].append(score(machine.predict(kernels[-kernel][np.ix_(test, train)])))
    return rates


def _inner_score(
    kernel: np.ndarray, labels: np.ndarray, folds: np.ndarray, train: np.ndarray, C: float
) -> float:
    """The accuracy of a support vector machine on each of the training folds in turn."""
    from sklearn.svm import SVC

    right = 0
    for fold in np.unique(folds[train]):
        inner, held_out = train[folds[train] != fold], train[folds[train] == fold]
        machine = SVC(kernel="precomputed", C=C)
        machine.fit(kernel[np.ix_(inner, inner)], labels[inner])
        right += np.sum(machine.predict(kernel[np.ix_(held_out, inner)]) == labels[held_out])
    return float(right)
