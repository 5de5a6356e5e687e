"""§5.2: recurrences that are linear in their state, and how all times are had at once."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.signal import fftconvolve
from scipy.special import expit

from ... import layers
from ...explain import operations
from ...layers import GRU, LRU, MinGRU
from ...layers.recurrent.scan import combine
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD, outputs, plain, slopes


def random_min(rng, n, m):
    """A cell with offsets, and its parts in NumPy."""
    G = rng.normal(size=(m, n))
    V = rng.normal(size=(m, n))
    g = rng.normal(size=m)
    v = rng.normal(size=m)
    return (G, V, g, v), MinGRU(*map(jnp.asarray, (G, V, g, v)))


@claim(
    "5.2-mingru",
    title="Gates that see the input alone",
    kind="model",
    of=("layers.MinGRU", "layers.GRU"),
    cites="Feng et al. 2024",
)
def minimal(key):
    r"""$z_t = s_t \odot z_{t-1} + (1 - s_t) \odot \tilde z_t$ with $s_t = \sigma(Gx_t)$ and
    $\tilde z_t = Vx_t$: a GRU whose gates and candidate do not read the state, and without the
    $\tanh$. It is linear in $z_{t-1}$ and $\tilde z_t$.
    """
    rng = chance(key)
    T = 9
    m = 4
    n = 3
    (G, V, g, v), cell = random_min(rng, n, m)
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
    gradient, numeric = slopes(cell, xs, c)
    small = 1e-5 * np.hstack([V, v[:, None]])
    rows = jnp.concatenate([jnp.zeros((m, n)), jnp.asarray(G), jnp.asarray(small[:, :n])])
    unit = GRU(
        jnp.zeros((3 * m, m)),
        rows,
        jnp.concatenate([jnp.zeros(m), jnp.asarray(g), jnp.asarray(small[:, n])]),
    )
    tiny = MinGRU(cell.G, jnp.asarray(small[:, :n]), cell.g, jnp.asarray(small[:, n]))
    doubled = MinGRU(cell.G, 2 * cell.V, cell.g, 2 * cell.v)
    return Verdict(
        close("against the loop", run(cell, start), states, tolerance=1e-13),
        close(f"all {len(gradient)} derivatives", gradient, numeric, **FD),
        close(
            "a GRU without state inputs, where tanh is linear",
            run(unit, 0 * start),
            run(tiny, 0 * start),
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
    title="This one is called minGRU",
    printed=r"\text{LRU: } z_t = \sigma(Gx_t) \odot z_{t-1} + (1 - \sigma(Gx_t)) \odot Vx_t",
    corrected=r"\text{minGRU: } z_t = \sigma(Gx_t) \odot z_{t-1} + (1 - \sigma(Gx_t)) \odot Vx_t",
    of=("layers.MinGRU", "layers.LRU"),
    cites="Feng et al. 2024; Orvieto et al. 2023",
    slip=True,
)
def named(key):
    r"""The unit is that of Feng et al., who call it minGRU; the notes call it LRU, a "linear
    recurrent model". The LRU of Orvieto et al., described next, is a linear system, the same at all
    times: its response to a sum of inputs is the sum of the responses. That of the minGRU is
    not."""
    rng = chance(key)
    n = 3
    m = 4
    a, b = (jnp.asarray(rng.normal(size=(8, n))) for _ in range(2))
    G, V = (jnp.asarray(rng.normal(size=(m, n))) for _ in range(2))
    gap = lambda cell: outputs(cell, a + b) - outputs(cell, a) - outputs(cell, b)
    name = "response to a sum, less the sum of responses"
    return Verdict(
        close(name, gap(LRU.init(n, m, m, key=key)), 0.0, tolerance=1e-12),
        printed=[close(name, gap(MinGRU(G, V, jnp.zeros(m), jnp.zeros(m))), 0.0, tolerance=1e-12)],
    )


def doubling(a, b):
    """Hillis and Steele's scan: in each round every place takes in the one twice as far back.
    Rounds, and combines.
    """
    distance, rounds, combines = 1, 0, 0
    while distance < len(a):
        joined = combine((a[:-distance], b[:-distance]), (a[distance:], b[distance:]))
        a, b = (jnp.concatenate([old[:distance], new]) for old, new in zip((a, b), joined))
        rounds = rounds + 1
        combines = combines + len(joined[0])
        distance = 2 * distance
    return b, rounds, combines


@claim(
    "5.2-parallel-scan",
    title="All times at once",
    kind="algorithm",
    of=("layers.prefix_scan", "layers.sequential_scan", "layers.linear_scan"),
    cites="Hillis & Steele 1986; Blelloch 1990",
)
def parallel(key):
    r"""$z_t = a_t \odot z_{t-1} + b_t$ is a prefix of the associative product
    $(a, b) \bullet (a', b') = (a'a, a'b + b')$: all of them in $\lceil \log_2 T \rceil$ rounds of
    up to $T$ products, or with at most $2T$ products in twice as many rounds. It is the depth that
    is logarithmic, not the work.
    """
    rng = chance(key)
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
    doubled, rounds, combines = jax.jit(doubling)(A, B)
    sizes = 2 ** np.arange(4, 11)
    work = np.array(
        [operations(layers.prefix_scan, jnp.ones(n), jnp.ones(n))["mul"] // 2 for n in sizes]
    )
    x, y, w = ((jnp.asarray(p), jnp.asarray(q)) for p, q in rng.normal(size=(3, 2, 50)))
    slope = jax.grad(lambda a: layers.linear_scan(a, B[:6]).sum())(A[:6])
    return Verdict(
        close(
            "prefix scan, against the loop, T = 1000",
            jax.jit(layers.prefix_scan)(A, B),
            expected,
            tolerance=1e-12,
        ),
        close("sequential scan", layers.sequential_scan(A, B), expected, tolerance=1e-12),
        close("linear scan", layers.linear_scan(A, B), expected, tolerance=1e-12),
        close("by doubling", doubled, expected, tolerance=1e-12),
        equal("rounds of doubling", rounds, 10),
        equal("products by doubling: Σ (T − 2^r)", combines, sum(T - 2**r for r in range(10))),
        at_most("products of the library's prefix scan over T", work / sizes, 2.0),
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
        close(
            "gradient in a",
            slope,
            jacobian(lambda a: layers.linear_scan(a, B[:6]).sum(), a[:6]),
            **FD,
        ),
        figure=Chart(
            Panel(
                "T",
                "products",
                log="xy",
                points={"prefix scan": (sizes, work)},
                bounds={"2T": (sizes, 2 * sizes), "T log₂ T": (sizes, sizes * np.log2(sizes))},
            )
        ),
    )


def system(rng, m, n, radius):
    """A random real matrix of this spectral radius, and one that reads."""
    A = rng.normal(size=(m, m))
    return A * radius / np.abs(np.linalg.eigvals(A)).max(), rng.normal(size=(m, n))


def linear(A, B):
    r"""$z \mapsto Az + Bx$ as a cell of the library."""
    return plain(A, B, phi=layers.identity)


@claim(
    "5.2-linear-system",
    title="A linear system is a convolution",
    kind="model",
    of=("layers.Elman", "layers.unroll"),
)
def linear_system(key):
    r"""$z_{t+1} = Az_t + Bx_t$ from $z_0 = 0$ has $z_t = \sum_{k=0}^{t-1} A^{t-1-k} B x_k$: the
    convolution of the inputs with $B, AB, A^2B, \dots$ What a cell puts out on reading $x_t$ is
    $z_{t+1}$.
    """
    rng = chance(key)
    T = 40
    m = 5
    n = 2
    A, B = system(rng, m, n, 0.95)
    xs = rng.normal(size=(T, n))
    found = np.asarray(outputs(linear(A, B), xs))
    kernel = np.array([np.linalg.matrix_power(A, k) @ B for k in range(T)])
    closed = np.array([sum(kernel[t - k] @ xs[k] for k in range(t + 1)) for t in range(T)])
    by_fft = sum(fftconvolve(kernel[:, :, j], xs[:, j : j + 1], axes=0)[:T] for j in range(n))
    impulse = outputs(linear(A, B), np.eye(1, T).T * [[1.0, 0.0]])
    return Verdict(
        close("the sum", found, closed, tolerance=1e-10),
        close("the convolution, by FFT", found, by_fft, tolerance=1e-10),
        close("response to an impulse: A^k B", impulse, kernel[:, :, 0], tolerance=1e-12),
        refuted(close("shifted by one", found[1:], closed[:-1], tolerance=1e-3)),
    )


@claim(
    "5.2-diagonalisable",
    title="Almost every matrix is diagonal in a complex basis",
    kind="theorem",
    of=("layers.gaussian", "layers.linear_scan"),
)
def diagonalisable(key):
    r"""$A = P \Lambda P^{-1}$ over $\mathbb{C}$ for almost every real matrix; the exceptions, such
    as a Jordan block, have measure 0.
    """
    law = layers.gaussian(1.0)
    As = np.asarray(jax.vmap(lambda key: law(key, (6, 6)))(jr.split(key, 1000)))
    lam, P = np.linalg.eig(As)
    back = (P * lam[:, None, :]) @ np.linalg.inv(P)
    impulse = jnp.zeros((5, 6, 6), complex).at[0].set(jnp.linalg.inv(jnp.asarray(P[0])))
    powers = P[0] @ np.asarray(
        layers.linear_scan(jnp.tile(jnp.asarray(lam[0])[:, None], (1, 6)), impulse)
    )
    block = np.eye(6) * 0.5 + np.eye(6, k=1)
    _, vectors = np.linalg.eig(block)
    condition = np.sort(np.linalg.cond(P))
    return Verdict(
        at_most("condition of P, the worst of 1,000 Gaussian 6 × 6", condition[-1], 1e8),
        close("PΛP⁻¹", back, As, tolerance=1e-8),
        close(
            "A⁰ to A⁴ by a scan of the eigenvalues",
            powers,
            [np.linalg.matrix_power(As[0], k) for k in range(5)],
            tolerance=1e-8,
        ),
        at_least(
            "share with complex eigenvalues", np.mean(np.abs(np.imag(lam)).max(axis=1) > 0), 0.5
        ),
        refuted(at_most("condition of P, a Jordan block", np.linalg.cond(vectors), 1e8)),
        figure=Chart(
            Panel(
                "share of the matrices",
                "condition of P at most",
                log="y",
                lines={"Gaussian 6 × 6": (np.linspace(0, 1, 1000), condition)},
            )
        ),
    )


@claim(
    "5.2-change-of-basis",
    title="In the basis of its eigenvectors",
    kind="identity",
    of=("layers.LRU", "layers.Elman", "layers.linear_scan"),
)
def change_of_basis(key):
    r"""With $\zeta = P^{-1}z$ and $C = P^{-1}B$ the system is
    $\zeta_{t+1} = \Lambda \zeta_t + Cx_t$, coordinate by coordinate, and $z = P\zeta$, which is
    real.
    """
    rng = chance(key)
    T = 50
    m = 6
    n = 2
    A, B = system(rng, m, n, 0.97)
    lam, P = np.linalg.eig(A)
    C = np.linalg.solve(P, B)
    xs = rng.normal(size=(T, n))
    found = np.asarray(outputs(linear(A, B), xs))
    zeta = np.asarray(layers.linear_scan(jnp.asarray(lam), jnp.asarray(xs @ C.T)))
    parts = lambda M: jnp.asarray(np.stack([M.real, M.imag]))
    unit = LRU(
        jnp.asarray(np.log(-np.log(np.abs(lam)))), jnp.asarray(np.angle(lam)), parts(C), parts(P)
    )
    return Verdict(
        close("z and Pζ, T = 50", found, np.real(zeta @ P.T), tolerance=1e-8),
        at_most("imaginary part of Pζ", np.abs(np.imag(zeta @ P.T)), 1e-10),
        close("the LRU of Λ, C and P", outputs(unit, xs), found, tolerance=1e-8),
        at_least("imaginary part of ζ", np.abs(np.imag(zeta)).max(), 1e-3),
        refuted(
            close(
                "with B in place of C",
                layers.linear_scan(jnp.asarray(lam), jnp.asarray(xs @ B.T)) @ P.T,
                found,
                tolerance=1e-3,
            )
        ),
    )


@claim("5.2-stability", title="The unit disk", kind="theorem", of=("layers.Elman", "layers.unroll"))
def stability(key):
    r"""Without input the states of $z_{t+1} = Az_t + Bx_t$, $A$ diagonalisable, stay bounded if and
    only if $\max_j |\lambda_j| \le 1$, and fade if and only if it is less. For bounded inputs to
    give bounded states it must be less.
    """
    rng = chance(key)
    T = 200
    P = rng.normal(size=(4, 4)) + 3 * np.eye(4)
    turn = [[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]]
    moved = lambda r: P @ (r * np.kron(np.eye(2), turn)) @ np.linalg.inv(P)
    z = rng.normal(size=4)
    silence = np.zeros((T, 1))
    ages = np.arange(1, T + 1)
    run = lambda A, xs, z: np.asarray(
        layers.unroll(linear(A, np.ones((len(A), 1))), jnp.asarray(xs), state=jnp.asarray(z))[1]
    )
    sizes = {r: np.linalg.norm(run(moved(r), silence, z), axis=1) for r in (0.95, 1.0, 1.05)}
    room = np.linalg.cond(P) * np.linalg.norm(z)
    sums = run(np.eye(1), np.ones((T, 1)), np.zeros(1))[:, 0]
    held = run(moved(0.95), np.ones((T, 1)), np.zeros(4))
    jordan = run(np.array([[1.0, 1.0], [0.0, 1.0]]), silence, np.array([0.0, 1.0]))
    return Verdict(
        at_most("|λ| = 0.95: norms", sizes[0.95], room * 0.95**ages, slack=1e-12),
        at_most("|λ| = 1: norms", sizes[1.0], room * (1 + 1e-9)),
        at_least("|λ| = 1: after 200 steps", sizes[1.0][-1], np.linalg.norm(z) / np.linalg.cond(P)),
        at_least(
            "|λ| = 1.05: after 200 steps",
            sizes[1.05][-1],
            1.05**T * np.linalg.norm(z) / np.linalg.cond(P),
        ),
        equal("λ = 1, constant input: it counts", sums, ages),
        at_most(
            "|λ| = 0.95, constant input: norms",
            np.linalg.norm(held, axis=1),
            np.linalg.cond(P) * 2 / 0.05,
        ),
        refuted(at_most("a Jordan block of λ = 1: norms", np.linalg.norm(jordan, axis=1), 10.0)),
        figure=Chart(
            Panel(
                "steps",
                "norm of the state",
                log="y",
                lines={f"|λ| = {r}": (ages, size) for r, size in sizes.items()},
            )
        ),
    )
