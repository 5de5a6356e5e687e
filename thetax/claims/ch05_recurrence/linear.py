"""§5.2: linear recurrences, and their parallel computation."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.signal import fftconvolve
from scipy.special import expit

from ... import layers
from ...explain import count_flops
from ...layers import GRU, LRU, MinGRU
from ...layers.recurrent.scan import combine
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import elman_cell, outputs, weight_gradients


def random_mingru(rng, n, m):
    """A random `MinGRU` cell and its weights in NumPy."""
    G = rng.normal(size=(m, n))
    V = rng.normal(size=(m, n))
    g = rng.normal(size=m)
    v = rng.normal(size=m)
    return (G, V, g, v), MinGRU(*map(jnp.asarray, (G, V, g, v)))


@claim(
    "5.2-mingru",
    title="minGRU: gates that depend on the input alone",
    kind="model",
    of=("layers.MinGRU", "layers.GRU"),
    cites="Feng et al. 2024",
)
def minimal(rng):
    r"""$z_t = s_t \odot z_{t-1} + (1 - s_t) \odot \tilde z_t$ with $s_t = \sigma(Gx_t)$ and
    $\tilde z_t = Vx_t$: a GRU whose gates and candidate do not depend on the state, without the
    $\tanh$. It is linear in $z_{t-1}$ and $\tilde z_t$.
    """
    T = 9
    m = 4
    n = 3
    (G, V, g, v), cell = random_mingru(rng, n, m)
    xs = rng.normal(size=(T, n))
    c = rng.normal(size=(T, m))
    start = rng.normal(size=m)
    z = start
    states = []
    for x in xs:
        s = expit(G @ x + g)
        z = s * z + (1 - s) * (V @ x + v)
        states.append(z)
    run = jax.jit(lambda cell, start: layers.unroll(cell, jnp.asarray(xs), state=start)[1])
    gradient, numeric = weight_gradients(cell, xs, c)
    scaled = 1e-5 * np.hstack([V, v[:, None]])
    rows = jnp.concatenate([jnp.zeros((m, n)), jnp.asarray(G), jnp.asarray(scaled[:, :n])])
    unit = GRU(
        jnp.zeros((3 * m, m)),
        rows,
        jnp.concatenate([jnp.zeros(m), jnp.asarray(g), jnp.asarray(scaled[:, n])]),
    )
    small_mingru = MinGRU(cell.G, jnp.asarray(scaled[:, :n]), cell.g, jnp.asarray(scaled[:, n]))
    doubled = MinGRU(cell.G, 2 * cell.V, cell.g, 2 * cell.v)
    return Verdict(
        close("against the loop", run(cell, start), states, tolerance=1e-13),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
        close(
            "a GRU without state inputs, for small candidates",
            run(unit, 0 * start),
            run(small_mingru, 0 * start),
            tolerance=1e-8,
            relative=True,
        ),
        close(
            "twice the state and the candidate: twice the result",
            run(doubled, 2 * start),
            2 * run(cell, start),
            tolerance=1e-13,
        ),
        refuted(
            close(
                "twice the input: twice the result",
                outputs(cell, 2 * xs),
                2 * outputs(cell, xs),
                tolerance=1e-3,
            )
        ),
    )


@erratum(
    "5.2-mingru",
    title="The unit is called minGRU, not LRU",
    printed=r"\text{LRU: } z_t = \sigma(Gx_t) \odot z_{t-1} + (1 - \sigma(Gx_t)) \odot Vx_t",
    corrected=r"\text{minGRU: } z_t = \sigma(Gx_t) \odot z_{t-1} + (1 - \sigma(Gx_t)) \odot Vx_t",
    of=("layers.MinGRU", "layers.LRU"),
    cites="Feng et al. 2024; Orvieto et al. 2023",
    slip=True,
)
def named(key, rng):
    r"""The unit is that of Feng et al., who call it minGRU; the notes call it LRU, a "linear
    recurrent model". The LRU of Orvieto et al., described next, is a linear time-invariant system:
    its response to a sum of inputs is the sum of the responses. This does not hold for the
    minGRU."""
    n = 3
    m = 4
    a, b = (jnp.asarray(rng.normal(size=(8, n))) for _ in range(2))
    G, V = (jnp.asarray(rng.normal(size=(m, n))) for _ in range(2))
    nonlinearity = lambda cell: outputs(cell, a + b) - outputs(cell, a) - outputs(cell, b)
    name = "response to a sum minus the sum of responses"
    return Verdict(
        close(name, nonlinearity(LRU.init(n, m, m, key=key)), 0.0),
        printed=[close(name, nonlinearity(MinGRU(G, V, jnp.zeros(m), jnp.zeros(m))), 0.0)],
    )


def doubling_scan(a, b):
    """Hillis and Steele's scan: in each round every position is combined with one twice as far
    back. Also the numbers of rounds and of combinations.
    """
    distance, rounds, combines = 1, 0, 0
    while distance < len(a):
        combined = combine((a[:-distance], b[:-distance]), (a[distance:], b[distance:]))
        a, b = (jnp.concatenate([old[:distance], new]) for old, new in zip((a, b), combined))
        rounds = rounds + 1
        combines = combines + len(combined[0])
        distance = 2 * distance
    return b, rounds, combines


@claim(
    "5.2-parallel-scan",
    title="Linear recurrences by a parallel scan",
    kind="algorithm",
    of=("layers.prefix_scan", "layers.sequential_scan", "layers.linear_scan"),
    cites="Hillis & Steele 1986; Blelloch 1990",
)
def parallel(rng):
    r"""$z_t = a_t \odot z_{t-1} + b_t$ is a prefix of the associative product
    $(a, b) \bullet (a', b') = (a'a, a'b + b')$: all prefixes take $\lceil \log_2 T \rceil$ rounds
    of up to $T$ products, or at most $2T$ products in twice as many rounds. The depth is
    logarithmic, not the work.
    """
    T = 1000
    a = rng.uniform(-1, 1, size=(T, 3))
    b = rng.normal(size=(T, 3))
    z = np.zeros(3)
    expected = []
    for t in range(T):
        z = a[t] * z + b[t]
        expected.append(z)
    A = jnp.asarray(a)
    B = jnp.asarray(b)
    doubled, rounds, combines = jax.jit(doubling_scan)(A, B)
    sizes = 2 ** np.arange(4, 11)
    work = np.array(
        [count_flops(layers.prefix_scan, jnp.ones(n), jnp.ones(n))["mul"] // 2 for n in sizes]
    )
    x, y, w = ((jnp.asarray(p), jnp.asarray(q)) for p, q in rng.normal(size=(3, 2, 50)))
    gradient = jax.grad(lambda a: layers.linear_scan(a, B[:6]).sum())(A[:6])
    return Verdict(
        close(
            "prefix scan, against the loop, T = 1000", jax.jit(layers.prefix_scan)(A, B), expected
        ),
        close("sequential scan", layers.sequential_scan(A, B), expected),
        close("linear scan", layers.linear_scan(A, B), expected),
        close("Hillis-Steele scan", doubled, expected),
        equal("rounds of the Hillis-Steele scan", rounds, 10),
        equal(
            "products of the Hillis-Steele scan: Σ (T − 2^r)",
            combines,
            sum(T - 2**r for r in range(10)),
        ),
        at_most("products of layers.prefix_scan over T", work / sizes, 2.0),
        close(
            "associative: (x • y) • w",
            np.stack(combine(combine(x, y), w)),
            np.stack(combine(x, combine(y, w))),
            tolerance=1e-13,
        ),
        refuted(
            close(
                "commutative: x • y",
                np.stack(combine(x, y)),
                np.stack(combine(y, x)),
                tolerance=1e-3,
            )
        ),
        close_derivative(
            "gradient by a", gradient, jacobian(lambda a: layers.linear_scan(a, B[:6]).sum(), a[:6])
        ),
        figure=Panel(
            "T",
            "products",
            log="xy",
            points={"prefix scan": (sizes, work)},
            bounds={"2T": (sizes, 2 * sizes), "T log₂ T": (sizes, sizes * np.log2(sizes))},
        ),
    )


def random_system(rng, m, n, radius):
    """A random real matrix A with the given spectral radius, and an input matrix B."""
    A = rng.normal(size=(m, m))
    return A * radius / np.abs(np.linalg.eigvals(A)).max(), rng.normal(size=(m, n))


def linear_cell(A, B):
    r"""$z \mapsto Az + Bx$ as an `Elman` cell."""
    return elman_cell(A, B, phi=layers.identity)


@claim(
    "5.2-linear-system",
    title="A linear system is a convolution",
    kind="model",
    of=("layers.Elman", "layers.unroll"),
)
def linear_system(rng):
    r"""$z_{t+1} = Az_t + Bx_t$ from $z_0 = 0$ has $z_t = \sum_{k=0}^{t-1} A^{t-1-k} B x_k$: the
    convolution of the inputs with $B, AB, A^2B, \dots$ The output of a cell for the input $x_t$ is
    $z_{t+1}$.
    """
    T = 40
    m = 5
    n = 2
    A, B = random_system(rng, m, n, 0.95)
    xs = rng.normal(size=(T, n))
    states = np.asarray(outputs(linear_cell(A, B), xs))
    kernel = np.array([np.linalg.matrix_power(A, k) @ B for k in range(T)])
    sums = np.array([sum(kernel[t - k] @ xs[k] for k in range(t + 1)) for t in range(T)])
    by_fft = sum(fftconvolve(kernel[:, :, j], xs[:, j : j + 1], axes=0)[:T] for j in range(n))
    impulse = outputs(linear_cell(A, B), np.eye(1, T).T * [[1.0, 0.0]])
    return Verdict(
        close("against the sum", states, sums, tolerance=1e-10),
        close("against the convolution, by FFT", states, by_fft, tolerance=1e-10),
        close("response to an impulse: A^k B", impulse, kernel[:, :, 0]),
        refuted(close("shifted by one", states[1:], sums[:-1], tolerance=1e-3)),
    )


@claim(
    "5.2-diagonalisable",
    title="Almost every matrix is diagonalisable over the complex numbers",
    kind="theorem",
    of=("layers.gaussian", "layers.linear_scan"),
)
def diagonalisable(key):
    r"""$A = P \Lambda P^{-1}$ over $\mathbb{C}$ for almost every real matrix; the exceptions, such
    as a Jordan block, have measure 0.
    """
    initialiser = layers.gaussian(1.0)
    As = np.asarray(jax.vmap(lambda key: initialiser(key, (6, 6)))(jr.split(key, 1000)))
    lam, P = np.linalg.eig(As)
    reconstructed = (P * lam[:, None, :]) @ np.linalg.inv(P)
    impulse = jnp.zeros((5, 6, 6), complex).at[0].set(jnp.linalg.inv(jnp.asarray(P[0])))
    powers = P[0] @ np.asarray(
        layers.linear_scan(jnp.tile(jnp.asarray(lam[0])[:, None], (1, 6)), impulse)
    )
    jordan = np.eye(6) * 0.5 + np.eye(6, k=1)
    _, vectors = np.linalg.eig(jordan)
    condition = np.sort(np.linalg.cond(P))
    return Verdict(
        at_most("largest condition number of P, 1,000 Gaussian 6 × 6 matrices", condition[-1], 1e8),
        close("PΛP⁻¹", reconstructed, As, tolerance=1e-8),
        close(
            "A⁰ to A⁴ by a scan of the eigenvalues",
            powers,
            [np.linalg.matrix_power(As[0], k) for k in range(5)],
            tolerance=1e-8,
        ),
        at_least(
            "share of matrices with complex eigenvalues",
            np.mean(np.abs(np.imag(lam)).max(axis=1) > 0),
            0.5,
        ),
        refuted(at_most("condition number of P, a Jordan block", np.linalg.cond(vectors), 1e8)),
        figure=Panel(
            "share of the matrices",
            "condition number of P at most",
            log="y",
            lines={"Gaussian 6 × 6": (np.linspace(0, 1, 1000), condition)},
        ),
    )


@claim(
    "5.2-change-of-basis",
    title="A linear system in the basis of its eigenvectors",
    kind="identity",
    of=("layers.LRU", "layers.Elman", "layers.linear_scan"),
)
def change_of_basis(rng):
    r"""With $\zeta = P^{-1}z$ and $C = P^{-1}B$ the system is
    $\zeta_{t+1} = \Lambda \zeta_t + Cx_t$, coordinate by coordinate, and $z = P\zeta$, which is
    real.
    """
    T = 50
    m = 6
    n = 2
    A, B = random_system(rng, m, n, 0.97)
    lam, P = np.linalg.eig(A)
    C = np.linalg.solve(P, B)
    xs = rng.normal(size=(T, n))
    states = np.asarray(outputs(linear_cell(A, B), xs))
    zeta = np.asarray(layers.linear_scan(jnp.asarray(lam), jnp.asarray(xs @ C.T)))
    parts = lambda M: jnp.asarray(np.stack([M.real, M.imag]))
    unit = LRU(
        jnp.asarray(np.log(-np.log(np.abs(lam)))), jnp.asarray(np.angle(lam)), parts(C), parts(P)
    )
    return Verdict(
        close("z and Pζ, T = 50", states, np.real(zeta @ P.T), tolerance=1e-8),
        at_most("imaginary part of Pζ", np.abs(np.imag(zeta @ P.T)), 1e-10),
        close("the LRU of Λ, C and P", outputs(unit, xs), states, tolerance=1e-8),
        at_least("imaginary part of ζ", np.abs(np.imag(zeta)).max(), 1e-3),
        refuted(
            close(
                "with B instead of C",
                layers.linear_scan(jnp.asarray(lam), jnp.asarray(xs @ B.T)) @ P.T,
                states,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.2-stability",
    title="Stability and the unit disk",
    kind="theorem",
    of=("layers.Elman", "layers.unroll"),
)
def stability(rng):
    r"""Without input the states of $z_{t+1} = Az_t + Bx_t$, $A$ diagonalisable, stay bounded if and
    only if $\max_j |\lambda_j| \le 1$, and tend to 0 if and only if it is less. For bounded inputs
    to give bounded states it must be less.
    """
    T = 200
    P = rng.normal(size=(4, 4)) + 3 * np.eye(4)
    rotation = [[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]]
    with_radius = lambda r: P @ (r * np.kron(np.eye(2), rotation)) @ np.linalg.inv(P)
    z = rng.normal(size=4)
    zero_input = np.zeros((T, 1))
    ages = np.arange(1, T + 1)
    run = lambda A, xs, z: np.asarray(
        layers.unroll(linear_cell(A, np.ones((len(A), 1))), jnp.asarray(xs), state=jnp.asarray(z))[
            1
        ]
    )
    sizes = {
        r: np.linalg.norm(run(with_radius(r), zero_input, z), axis=1) for r in (0.95, 1.0, 1.05)
    }
    bound = np.linalg.cond(P) * np.linalg.norm(z)
    sums = run(np.eye(1), np.ones((T, 1)), np.zeros(1))[:, 0]
    driven = run(with_radius(0.95), np.ones((T, 1)), np.zeros(4))
    jordan = run(np.array([[1.0, 1.0], [0.0, 1.0]]), zero_input, np.array([0.0, 1.0]))
    return Verdict(
        at_most("|λ| = 0.95: norms", sizes[0.95], bound * 0.95**ages, slack=1e-12),
        at_most("|λ| = 1: norms", sizes[1.0], bound * (1 + 1e-9)),
        at_least("|λ| = 1: after 200 steps", sizes[1.0][-1], np.linalg.norm(z) / np.linalg.cond(P)),
        at_least(
            "|λ| = 1.05: after 200 steps",
            sizes[1.05][-1],
            1.05**T * np.linalg.norm(z) / np.linalg.cond(P),
        ),
        equal("λ = 1, constant input: the state is t", sums, ages),
        at_most(
            "|λ| = 0.95, constant input: norms",
            np.linalg.norm(driven, axis=1),
            np.linalg.cond(P) * 2 / 0.05,
        ),
        refuted(at_most("a Jordan block of λ = 1: norms", np.linalg.norm(jordan, axis=1), 10.0)),
        figure=Panel(
            "steps",
            "norm of the state",
            log="y",
            lines={f"|λ| = {r}": (ages, size) for r, size in sizes.items()},
        ),
    )
