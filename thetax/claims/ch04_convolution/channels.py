"""§4.2, lecture 10 A.6 to A.8: images with several channels, and layers with several filters."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from ... import data, layers, tree
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .signals import correlate_channel, random_integers


def by_pairs(W: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Output channel c is the sum over input channels r of SciPy's convolution with w[c, r]."""
    return np.array(
        [sum(signal.convolve2d(x[r], w[r], mode="full") for r in range(len(x))) for w in W]
    )


@claim(
    "4.2-channels",
    title="Convolution with several channels",
    kind="layer",
    of=("layers.convolve", "layers.Convolution", "tree.size"),
)
def channels(key, rng):
    r"""$(X * W)[c, i, j] = \sum_{r=1}^{C_{in}} \sum_k \sum_l w[c, r, k, l]\, x[r, i - k, j - l]$
    with $W \in \mathbb{R}^{C_{out} \times C_{in} \times K \times K}$: a kernel for every pair of
    channels, $C_{out} C_{in} K^2$ weights and $C_{out}$ biases. A kernel of 1 by 1 is a matrix
    acting on the channels.
    """
    W = rng.normal(size=(4, 3, 3, 3))
    x = rng.normal(size=(3, 5, 6))
    d = rng.normal(size=(4, 7, 8))
    full = lambda W, x: layers.convolve(W, x, boundary="full")
    M = rng.normal(size=(4, 3))
    pixelwise = layers.convolve(jnp.asarray(M)[:, :, None, None], jnp.asarray(x))
    value = jax.jit(lambda W: jnp.vdot(full(W, jnp.asarray(x)), jnp.asarray(d)))
    layer = jax.eval_shape(lambda key: layers.Convolution.init(3, 4, (5, 5), key=key), key)
    return Verdict(
        close(
            "against scipy for each pair of channels",
            full(jnp.asarray(W), jnp.asarray(x)),
            by_pairs(W, x),
        ),
        close("1 by 1: a matrix on the channels", pixelwise, np.einsum("cr,rij->cij", M, x)),
        close_derivative(
            "gradient by W", jax.jit(jax.grad(value))(jnp.asarray(W)), jacobian(value, W)
        ),
        equal("parameters", tree.size(layer), 4 * 3 * 5**2 + 4),
    )


@erratum(
    "4.2-channels",
    title="The output channels come first",
    printed=r"W \in \mathbb{R}^{C_{in} \times C_{out} \times K \times K}",
    corrected=r"W \in \mathbb{R}^{C_{out} \times C_{in} \times K \times K}",
    of=("layers.convolve",),
    slip=True,
)
def outputs_first(rng):
    r"""The sum uses $w[c, r, k, l]$ with $c$ an output and $r$ an input channel, so the output
    channels come first. A tensor in the printed order has the kernels of other pairs at these
    indices.
    """
    W, x = rng.normal(size=(3, 3, 2, 2)), rng.normal(size=(3, 4, 4))  # W[c, r]
    run = lambda W: layers.convolve(jnp.asarray(W), jnp.asarray(x), boundary="full")
    return Verdict(
        close("outputs first", run(W), by_pairs(W, x)),
        printed=[close("inputs first", run(W.swapaxes(0, 1)), by_pairs(W, x))],
    )


@claim(
    "L10-A6-image-tensor",
    title="Images as tensors",
    kind="definition",
    of=("data.Dataset", "layers.Convolution"),
)
def image_tensor(rng):
    r"""An image is a tensor of height, width and channels, one for grey and three for colour; its
    pixels, 0 to 255, are scaled to $[0, 1]$, and this is exactly invertible. The library puts the
    channels first, with the same convolution.
    """
    levels = np.arange(256, dtype=np.uint8)
    grey = rng.permutation(levels).reshape(1, 16, 16)
    colour = rng.integers(256, size=(2, 3, 5, 4), dtype=np.uint8)
    dataset = data.Dataset("pictures", "", "", 0)
    load = lambda xs: dataset.data({"train_x": xs, "train_y": np.zeros(len(xs), np.uint8)}).train[0]
    xs = load(colour)
    last = np.moveaxis(xs[0], 0, -1)  # height, width, channels
    W = rng.normal(size=(2, 3, 3, 3))
    ours = layers.Convolution(jnp.asarray(W), boundary="valid")(jnp.asarray(xs[0], float))
    loop = [
        [
            [np.sum(np.moveaxis(w, 0, -1) * last[i : i + 3, j : j + 3]) for j in range(2)]
            for i in range(3)
        ]
        for w in W
    ]
    return Verdict(
        equal(
            "smallest and largest scaled value", [load(grey).min(), load(grey).max()], [0.0, 1.0]
        ),
        equal(
            "all 256 levels, scaled and scaled back",
            np.round(255 * load(grey)).astype(np.uint8),
            grey,
        ),
        equal("colour image, scaled and scaled back", np.round(255 * xs).astype(np.uint8), colour),
        refuted(
            equal(
                "scaled back with 256 instead of 255",
                np.round(256 * load(grey)).astype(np.uint8),
                grey,
            )
        ),
        equal("channels moved last and back", np.moveaxis(last, -1, 0), xs[0]),
        equal("the shape with channels last", last.shape, [5, 4, 3]),
        close("a convolution, against sums with channels last", ours, loop, tolerance=1e-5),
    )


@claim(
    "L10-A6-conv-layer",
    title="The convolution layer",
    kind="layer",
    of=("layers.Convolution", "layers.Chain", "tree.size"),
)
def layer(rng):
    r"""Output channel $l$ is $\sigma(\sum_k W_{lk} \star x_k + b_l)$ with filters of $m$ by $m$:
    $m^2 C_{in} C_{out} + C_{out}$ parameters, for every image size. It is one matrix product
    if the windows are the columns of a matrix.
    """
    m = 3
    C_in, C_out = 2, 4
    W = rng.normal(size=(C_out, C_in, m, m))
    b = rng.normal(size=C_out)
    x = rng.normal(size=(C_in, 6, 5))
    conv = layers.Convolution(jnp.asarray(W), jnp.asarray(b), boundary="valid")
    net = layers.Chain(conv, layers.relu)
    loop = np.zeros((C_out, 4, 3))
    for l, i, j in np.ndindex(*loop.shape):
        total = b[l]
        for k, p, q in product(range(C_in), range(m), range(m)):
            total += W[l, k, p, q] * x[k, i + p, j + q]
        loop[l, i, j] = max(total, 0.0)
    columns = np.array([x[:, i : i + m, j : j + m].ravel() for i, j in np.ndindex(4, 3)]).T
    product_form = np.maximum(W.reshape(C_out, -1) @ columns + b[:, None], 0).reshape(loop.shape)
    larger = net(jnp.asarray(rng.normal(size=(C_in, 11, 9))))
    return Verdict(
        close("against a loop over six indices", net(jnp.asarray(x)), loop),
        close("against the product with windows as columns", net(jnp.asarray(x)), product_form),
        equal("parameters", tree.size(net), m**2 * C_in * C_out + C_out),
        equal("the same layer on a larger image", larger.shape, [C_out, 9, 7]),
    )


@claim(
    "L10-A6-local-shared",
    title="A convolution is a sparse dense layer with shared weights",
    kind="identity",
    of=("layers.Convolution", "layers.matrix_of"),
)
def local_and_shared(rng):
    r"""A convolution is a dense layer whose matrix is sparse, with $m^2 C_{in}$ non-zero entries
    per row (local receptive fields), and whose rows of one channel have the same entries (shared
    parameters).
    """
    m = 3
    C_in, C_out = 2, 3
    size = (6, 5)
    W = rng.normal(size=(C_out, C_in, m, m))
    x = rng.normal(size=(C_in, *size))
    conv = layers.Convolution(jnp.asarray(W), boundary="valid")
    A = np.asarray(layers.matrix_of(conv, x.shape))
    by_hand = np.zeros((C_out, 4, 3, C_in, *size))
    for l, i, j in np.ndindex(C_out, 4, 3):
        by_hand[l, i, j, :, i : i + m, j : j + m] = W[l]
    rows = [sorted(row[row != 0]) for row in A]
    return Verdict(
        equal("the matrix, entry by entry", A, by_hand.reshape(A.shape)),
        close(
            "the matrix times the input, against the layer",
            A @ x.ravel(),
            np.ravel(conv(jnp.asarray(x))),
        ),
        equal("non-zero entries per row", [len(row) for row in rows], np.full(len(A), m**2 * C_in)),
        equal(
            "entries of every row of a channel",
            rows,
            np.repeat(np.sort(W.reshape(C_out, -1)), 12, axis=0),
        ),
        equal(
            "number of entries, and of distinct non-zero entries",
            [A.size, len(np.unique(A[A != 0]))],
            [36 * 60, W.size],
        ),
    )


PRINTED = "aα+bβ+dγ+eδ bα+cβ+eγ+fδ dα+eβ+gγ+hδ eα+fβ+hγ+iδ gα+hβ+jγ+kδ hα+iβ+kγ+lδ"


@claim(
    "L10-A7-example",
    title="An example of a filter on an image",
    kind="identity",
    of=("layers.correlate", "layers.matrix_of"),
)
def example(key):
    r"""The image $a \dots l$ of 4 by 3 and the filter $\alpha, \beta; \gamma, \delta$ give a map of
    3 by 2 whose first entry is $a\alpha + b\beta + d\gamma + e\delta$.
    """
    image = random_integers(key, 4, 3)
    kernel = 10.0 + np.arange(4)
    letter = dict(zip("abcdefghijkl", image.ravel()))
    greek = dict(zip("αβγδ", kernel))
    by_letters = [
        sum(letter[t[0]] * greek[t[1]] for t in entry.split("+")) for entry in PRINTED.split()
    ]
    matrix = np.zeros((6, 12))
    for row, entry in enumerate(PRINTED.split()):
        for term in entry.split("+"):
            matrix[row, "abcdefghijkl".index(term[0])] = greek[term[1]]
    conv = layers.Convolution(jnp.asarray(kernel.reshape(1, 1, 2, 2)), boundary="valid")
    return Verdict(
        equal(
            "the six entries",
            correlate_channel(kernel.reshape(2, 2), image),
            np.reshape(by_letters, (3, 2)),
        ),
        equal(
            "the matrix, from the letters of each entry",
            layers.matrix_of(conv, (1, 4, 3)),
            matrix,
        ),
    )


SOBEL = np.array([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])  # for vertical edges


@claim(
    "L10-A8-stripes",
    title="Filters detect patterns",
    kind="experiment",
    of=("layers.correlate", "layers.Convolution"),
)
def stripes(rng):
    r"""A filter for vertical edges responds most at vertical edges and not at all to horizontal
    ones, and conversely for its transpose. Among patches of one norm the response is largest for
    the filter's own pattern, by Cauchy-Schwarz. On a colour image the responses of the channels are
    summed.
    """
    vertical = np.zeros((8, 8))
    vertical[:, 4:] = 1.0
    horizontal = vertical.T
    patches = rng.normal(size=(500, 3, 3))
    patches /= np.linalg.norm(patches, axis=(1, 2), keepdims=True)
    responses = [
        float(correlate_channel(SOBEL, patch)[0, 0])
        for patch in (*patches[:5], SOBEL / np.linalg.norm(SOBEL))
    ]
    products = np.sum(SOBEL * patches, axis=(1, 2))
    scene = 0.1 * rng.normal(size=(12, 12))
    scene[6:9, 2:5] += SOBEL
    scene_response = correlate_channel(SOBEL, scene)
    image = rng.normal(size=(3, 6, 6))
    W = rng.normal(size=(1, 3, 3, 3))
    colour_response = layers.Convolution(jnp.asarray(W), boundary="valid")(jnp.asarray(image))[0]
    return Verdict(
        equal(
            "columns of the responses to a vertical edge",
            np.unique(np.nonzero(correlate_channel(SOBEL, vertical))[1]),
            [2, 3],
        ),
        equal(
            "the response there", correlate_channel(SOBEL, vertical)[:, 2:4], np.full((6, 2), 4.0)
        ),
        equal(
            "the response to a horizontal edge",
            np.abs(correlate_channel(SOBEL, horizontal)).max(),
            0.0,
        ),
        equal(
            "the transposed filter on a horizontal edge",
            correlate_channel(SOBEL.T, horizontal),
            correlate_channel(SOBEL, vertical).T,
        ),
        close("the response to the filter's own pattern", responses[-1], np.linalg.norm(SOBEL)),
        close("responses to other patterns", responses[:-1], products[:5]),
        at_least(
            "own response minus the largest response to 500 other patterns",
            np.linalg.norm(SOBEL) - products.max(),
            0.0,
        ),
        equal(
            "position of the largest response to a scene with the pattern",
            np.unravel_index(scene_response.argmax(), scene_response.shape),
            [6, 2],
        ),
        close(
            "a colour image: the sum over channels",
            colour_response,
            sum(correlate_channel(W[0, k], image[k]) for k in range(3)),
        ),
    )
