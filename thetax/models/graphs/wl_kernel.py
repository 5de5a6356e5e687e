r"""The Weisfeiler-Leman subtree kernel of Shervashidze et al. (JMLR 2011) (§7.4).

A graph's features are the numbers of its nodes of each colour after 0, 1, ..., $h$ rounds of colour
refinement, $\phi(G)$, and $k(G, G') = \phi(G)^\top \phi(G')$. Two graphs have the same features
exactly if 1-WL cannot tell them apart in $h$ rounds. For a support vector machine give the matrix
to `sklearn.svm.SVC(kernel="precomputed")`; for a Gaussian process give the features to
`bayes.linear_kernel()`, or to any other kernel of vectors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
from jaxtyping import Float

from ...check import expect_count
from ...data.graphs import Graph
from ...data.graphs.colour_refinement import colour_refinement


def wl_features(
    graphs: Sequence[Graph],
    *,
    rounds: int = 3,
    node_features: bool = False,
    edge_features: bool = False,
    normalise: bool = False,
) -> sparse.csr_array:
    r"""The counts $\phi(G)$, a sparse row for each graph; `.toarray()` makes it dense.

    Training and test graphs are given **together**, since a column is a colour of this call; a
    test graph's colours that no training graph has do not change a model (their features are 0 on
    the training set). `node_features` and `edge_features` are as in `data.colour_refinement`: the
    kernel is about graphs with labels. `normalise` scales rows to norm 1, so that large graphs do
    not dominate.

    >>> path, star = Graph.from_edges([(0, 1), (1, 2), (2, 3)]), Graph.from_edges([(0, 1), (0, 2)])
    >>> wl_features([path, star], rounds=1).toarray().tolist()
    [[4.0, 2.0, 2.0], [3.0, 2.0, 1.0]]
    """
    expect_count("wl_features", rounds=rounds)
    refinement = colour_refinement(
        graphs, rounds=rounds, node_features=node_features, edge_features=edge_features
    )
    starts = np.cumsum([0, *refinement.n_colours])
    columns = (refinement.colours + starts[:-1, None]).ravel()
    rows = np.tile(refinement.graph_ids, rounds + 1)
    shape = (refinement.n_graphs, int(starts[-1]))
    counts = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=shape).tocsr()
    if not normalise:
        return counts
    norms = np.sqrt(counts.multiply(counts).sum(axis=1))
    return sparse.diags_array(np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)) @ (
        counts
    )


def wl_kernel(
    graphs: Sequence[Graph], others: Sequence[Graph] | None = None, **options: Any
) -> Float[np.ndarray, "g h"]:
    r"""The matrix $k(G_i, G'_j)$ of the kernel between `graphs` and `others`, by default
    themselves; options as in `wl_features`.

    >>> path, star = Graph.from_edges([(0, 1), (1, 2), (2, 3)]), Graph.from_edges([(0, 1), (0, 2)])
    >>> wl_kernel([path, star], rounds=1).tolist()
    [[24.0, 18.0], [18.0, 14.0]]
    """
    graphs = list(graphs)
    features = wl_features([*graphs, *(others or ())], **options)
    n = len(graphs)
    left, right = features[:n], features if others is None else features[n:]
    return (left @ right.T).toarray()
