"""§7.2: Deep Sets, their aggregations, and how large the latent space must be."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import tree
from ...core import predict, run
from ...data import stack_sets
from ...layers import Pointwise, aggregate_set, tanh
from ...models import DeepSets, EquivariantDeepSets
from ...plot import Arrow, Box, Diagram, Panel
from ...train import descend, squared_error
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .permutations import all_orders, equivariance_error, invariance_error
from .sets_by_loop import generic, mlp, slope_and_differences

ZAHEER = "Zaheer et al. 2017"
WAGSTAFF = "Wagstaff et al. 2019"
D, LATENT = 2, 5


def network(key, aggregation="sum") -> DeepSets:
    """A smooth Deep Sets network for elements of D numbers."""
    net = DeepSets.init(
        D, 3, latent=LATENT, hidden=(6,), activation=tanh, aggregation=aggregation, key=key
    )
    return generic(net, key)


def by_loop(net: DeepSets, X: np.ndarray, aggregate=lambda rows: np.sum(rows, axis=0)):
    r"""$\rho(\bigoplus \varphi(x_m))$ by loops."""
    latent = [mlp(net.phi, x, np.tanh) for x in X]
    return mlp(net.rho, aggregate(latent) if latent else np.zeros(LATENT), np.tanh)


@claim(
    "7.2-deepsets-inv",
    title="Deep Sets are invariant",
    kind="model",
    of=("models.DeepSets",),
    cites=ZAHEER,
)
def deep_sets(key, rng):
    r"""$f(X) = \rho(\sum_m \varphi(x_m))$ is invariant under permutations and takes sets of any
    size; the empty set gives $\rho(0)$.
    """
    net = network(key)
    X = rng.normal(size=(5, D))
    sets = [rng.normal(size=(M, D)) for M in (1, 3, 50)]
    target = rng.normal(size=3)
    loss = lambda net: jnp.vdot(target, net(jnp.asarray(X)))
    slope, differences = slope_and_differences(loss, net)
    return Verdict(
        at_most("relative change over 120 orders", invariance_error(net, X, all_orders(5)), 1e-12),
        *(
            close(f"{len(Y)} elements, by a loop", net(jnp.asarray(Y)), by_loop(net, Y))
            for Y in sets
        ),
        close("the empty set: ρ(0)", net(jnp.zeros((0, D))), by_loop(net, np.zeros((0, D)))),
        close_derivative(f"gradient in all {len(slope)} parameters", slope, differences),
        at_least(
            "entries of the gradient above 1e-9", (np.abs(slope) > 1e-9).sum(), len(slope) // 2
        ),
    )


@claim(
    "7.2-deepsets-agg",
    title="Other aggregations, and sets of different sizes",
    kind="layer",
    of=("layers.aggregate_set", "data.stack_sets", "models.DeepSets"),
    cites=ZAHEER,
)
def aggregations(key, rng):
    r"""Mean, maximum or minimum can take the place of the sum. A batch of padded sets with a mask
    gives the results of the single sets, and the gradient of the maximum goes only to the elements
    that attain it.
    """
    sets = [rng.normal(size=(M, D)) for M in (1, 4, 7)]
    padded = stack_sets(sets)
    padded = padded.__class__(
        jnp.where(padded.mask[..., None], padded.points, 1e6), padded.mask
    )  # padding that would show
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
    checks = []
    for how, in_numpy in reduce.items():
        net = network(key, how)
        looped = [by_loop(net, X, lambda rows, f=in_numpy: f(rows, axis=0)) for X in sets]
        checks.append(close(f"{how}: a padded batch, by a loop", predict(net, padded), looped))
    X = rng.normal(size=(4, D))
    for how, extreme in (("max", np.argmax), ("min", np.argmin)):
        total = lambda X, how=how: aggregate_set(X, how).sum()
        slope = np.asarray(jax.grad(total)(jnp.asarray(X)))
        checks += [
            equal(f"{how}: gradient", slope, (extreme(X, axis=0) == np.arange(4)[:, None]) * 1.0),
            close_derivative(f"{how}: gradient", slope, jacobian(total, X)),
        ]
    unmasked = [network(key, "max")(jnp.asarray(X)) for X in np.asarray(padded.points)]
    masked = predict(network(key, "max"), padded)
    return Verdict(
        *checks, refuted(close("without the mask", np.stack(unmasked), masked, tolerance=1e-3))
    )


@claim(
    "7.2-deepsets-multiset",
    title="What an aggregation can distinguish",
    kind="identity",
    of=("layers.aggregate_set",),
    cites="Xu et al. 2019",
)
def multisets():
    r"""With one-hot elements the sum counts every element; the mean sees the proportions only, and
    maximum and minimum only which elements occur.
    """
    one_hot = lambda letters: jnp.eye(2)[np.array(["ab".index(letter) for letter in letters])]
    of = lambda how, letters: np.asarray(aggregate_set(one_hot(letters), how))
    return Verdict(
        equal("sum of {a, a, b}: the counts", of("sum", "aab"), [2.0, 1.0]),
        refuted(equal("sum of {a, a, b} and {a, b}", of("sum", "aab"), of("sum", "ab"))),
        equal("mean of {a, b} and {a, a, b, b}", of("mean", "ab"), of("mean", "aabb")),
        refuted(equal("mean of {a, b} and {a, a, b}", of("mean", "ab"), of("mean", "aab"))),
        equal("max of {a, a, b} and {a, b}", of("max", "aab"), of("max", "ab")),
        refuted(equal("max of {a, a} and {a, b}", of("max", "aa"), of("max", "ab"))),
        equal("min of {a, a, b} and {a, b}", of("min", "aab"), of("min", "ab")),
    )


@claim(
    "7.2-deepsets-equiv",
    title="Equivariant Deep Sets",
    kind="model",
    of=("models.EquivariantDeepSets",),
    cites=ZAHEER,
)
def equivariant_deep_sets(key, rng):
    r"""$y_m = \rho(x_m, \sum_k \varphi(x_k))$ is equivariant; every output depends on every
    element, and equal elements have equal outputs.
    """
    net = generic(
        EquivariantDeepSets.init(D, 3, latent=LATENT, hidden=(6,), activation=tanh, key=key), key
    )
    X = rng.normal(size=(5, D))
    context = np.sum([mlp(net.phi, x, np.tanh) for x in X], axis=0)
    looped = [mlp(net.rho, np.concatenate([x, context]), np.tanh) for x in X]
    slopes = np.abs(jacobian(jax.jit(lambda X: net(X)), X)).max(axis=(1, 3))
    twice = X[[0, 1, 1, 2, 1]]
    result = np.asarray(net(jnp.asarray(twice)))
    error = equivariance_error(net, X, all_orders(5))
    pointwise = jax.jit(lambda X: jax.vmap(net.phi)(X))
    others = np.abs(jacobian(pointwise, X)).max(axis=(1, 3))[~np.eye(5, dtype=bool)]
    return Verdict(
        at_most("f(PX) = P f(X), relative error over 120 orders", error, 1e-12),
        close("by a loop", net(jnp.asarray(X)), np.array(looped)),
        at_least("∂y_m/∂x_k for all m and k, by differences", slopes, 1e-4),
        refuted(at_least("φ alone: ∂φ(x_m)/∂x_k for k ≠ m", others, 1e-4)),
        close("outputs of equal elements", result[[2, 4]], result[[1, 1]]),
    )


def power_sums(M: int) -> DeepSets:
    r"""The network with $\varphi(x) = (x, x^2, \dots, x^M)$ and $\rho$ the identity."""
    powers = Pointwise(lambda x: x ** jnp.arange(1, M + 1, dtype=x.dtype))
    return DeepSets(powers, Pointwise(lambda p: p))


def elements_of(p: np.ndarray) -> np.ndarray:
    """The multiset with these power sums: Newton's identities, then the roots of a polynomial."""
    e = [1.0]
    for k in range(1, len(p) + 1):
        e.append(sum((-1) ** (i - 1) * e[k - i] * p[i - 1] for i in range(1, k + 1)) / k)
    return np.sort(np.roots([(-1) ** k * e[k] for k in range(len(e))]).real)


COLLISIONS = (((0, 2), (1, 1)), ((1, 5, 6), (2, 3, 7)), ((0, 4, 7, 11), (1, 2, 9, 10)))


@claim(
    "7.2-deepsets-universal",
    title="A latent dimension of M suffices for M numbers",
    kind="theorem",
    of=("models.DeepSets", "layers.Pointwise"),
    cites=f"{ZAHEER}; {WAGSTAFF}",
)
def universal(rng):
    r"""With $\varphi(x) = (x, x^2, \dots, x^M)$ the sum $\sum_m \varphi(x_m)$ determines the $M$
    numbers, so $\rho$ can be any invariant function of them. The first $M - 1$ powers do not:
    different multisets have equal sums.
    """
    checks = []
    for M in range(2, 7):
        found, expected = [], []
        model = jax.jit(power_sums(M).__call__)
        for _ in range(20):
            x = rng.uniform(-1, 1, M)
            found.append(elements_of(np.asarray(model(jnp.asarray(x)[:, None]))))
            expected.append(np.sort(x))
        checks.append(close(f"the {M} numbers again", found, expected, tolerance=1e-4))
    for a, b in COLLISIONS:
        M = len(a)
        sums = [np.asarray(power_sums(M)(jnp.asarray(x, float)[:, None])) for x in (a, b)]
        name = f"{set(a) if len(set(a)) == M else a} and {set(b) if len(set(b)) == M else b}"
        checks += [
            equal(f"{name}: powers up to {M - 1}", sums[0][:-1], sums[1][:-1]),
            refuted(equal(f"{name}: power {M}", sums[0][-1], sums[1][-1])),
        ]
    return Verdict(*checks)


SEEDS = 3
M_NUMBERS = 10


@claim(
    "7.2-deepsets-latent-dim",
    title="Too small a latent space limits what is learned",
    kind="experiment",
    of=("models.DeepSets", "train.squared_error", "train.descend"),
    cites=WAGSTAFF,
)
def latent_dimension(key, scale):
    r"""Deep Sets learn the median of 10 numbers from $[-1, 1]$: the test error with the latent
    dimension 20 is less than half of that with 1, for each of three seeds.
    """
    steps, latents = (2000, (1, 2, 10, 20)) if scale == "full" else (500, (1, 20))
    key_train, key_test, key_init = jr.split(key, 3)

    def sample(key, *shape):
        xs = jr.uniform(key, (*shape, M_NUMBERS, 1), jnp.float32, minval=-1, maxval=1)
        return xs, jnp.median(xs, axis=-2)

    batches, test = sample(key_train, steps, 32), sample(key_test, 2000)

    def error(latent, key):
        net = DeepSets.init(1, 1, latent=latent, hidden=(32, 32), activation=tanh, key=key)
        net = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), net)
        adam = optax.adam(optax.cosine_decay_schedule(5e-3, steps))
        state, _ = run(descend(squared_error, adam), net, batches, key=key)
        return squared_error(state.model, test)

    keys = jr.split(key_init, SEEDS)
    errors = np.array([jax.jit(jax.vmap(lambda k, d=d: error(d, k)))(keys) for d in latents])
    variance = float(jnp.var(test[1]))
    return Verdict(
        at_most("error with 20 over error with 1, each seed", errors[-1] / errors[0], 0.5),
        at_most("error with 20 over the variance of the median", errors[-1] / variance, 0.1),
        figure=Panel(
            "latent dimension",
            "mean squared error of the median",
            log="xy",
            lines={f"seed {i}": (latents, errors[:, i]) for i in range(SEEDS)},
            bounds={"variance": (latents, [variance] * len(latents))},
        ),
    )


@claim(
    "7.2-fig-deepsets",
    title="Diagram of Deep Sets",
    kind="figure",
    of=("models.DeepSets", "plot.Diagram", "plot.Box", "plot.Arrow"),
)
def figure(key):
    r"""The same $\varphi$ for every element, a sum, and $\rho$: the number of parameters does not
    depend on the number of elements.
    """
    net = DeepSets.init(D, 1, latent=LATENT, hidden=(6,), key=key)
    used = []
    for M in (1, 3, 50):
        slope = jax.grad(lambda net, M=M: net(jnp.ones((M, D))).sum())(net)
        used.append(tree.size(slope.phi))
    by_hand = 6 * D + 6 + LATENT * 6 + LATENT
    shape = jax.eval_shape(net.latent, jnp.ones((3, D))).shape
    boxes = {f"x{m}": Box(0, 1.0 - m, 0.6, 0.5, f"x{m + 1}", False) for m in range(3)}
    boxes |= {f"φ{m}": Box(1.5, 1.0 - m, 0.8, 0.6, "φ") for m in range(3)}
    boxes |= {
        "sum": Box(3.2, 0, 0.8, 0.8, "Σ"),
        "ρ": Box(4.7, 0, 0.8, 0.6, "ρ"),
        "y": Box(6.0, 0, 0.8, 0.5, "f(X)", False),
    }
    arrows = [Arrow(f"x{m}", f"φ{m}") for m in range(3)]
    arrows += [Arrow(f"φ{m}", "sum") for m in range(3)]
    arrows += [Arrow("sum", "ρ", str(*shape)), Arrow("ρ", "y")]
    wider = tree.size(DeepSets.init(D + 1, 1, latent=LATENT, hidden=(6,), key=key).phi)
    return Verdict(
        equal("parameters of φ for 1, 3 and 50 elements", used, [by_hand] * 3),
        equal("dimension of the sum", shape, (LATENT,)),
        refuted(equal("parameters of φ for elements of one more number", wider, by_hand)),
        figure=Diagram(boxes, arrows),
    )
