"""Random programs whose bounds are tested at points of the box.

A program is a list of steps over a pool of arrays: the input, constants, and what earlier steps
gave. The steps cover `jax.lax`, `jax.numpy`, control flow, calls, custom derivatives and dtypes,
whether they have bounds or not. Either a program is refused with a ValueError that names an
operation, or no point of a box leaves its bounds: the corners, random points, and a search that
moves towards each bound. Bounds of many boxes and outputs at their points are one compiled program.

    python -m tests.bounds_fuzz --minutes 60            # new seeds until the time is over
    python -m tests.bounds_fuzz --first 1234 --count 1  # one program again
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from thetax.certify import certified_margins, interval_bounds, linear_bounds
from thetax.threat import Linf

SIZE = 4  # of the input and of every vector; 2 x 2 of every matrix
REFUSAL = re.compile(r"cannot bound '([\w-]+)'")
BOXES, POINTS, ROUNDS = 32, 40, 3  # boxes of a program, points of a box at once, and how often
MARGINS = ("interval", "linear")
KEEP_REFUSED = 0.1  # fraction of refused steps that stay in a program
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int32",
    "int8",
    "uint8",
    "bool",
    "complex128",
)


class Step(NamedTuple):
    """One operation on arrays of the pool."""

    name: str
    do: Callable[..., Any]
    reads: tuple[int, ...]


class Program(NamedTuple):
    """Constants, and steps one after the other; the pool starts with the input and the
    constants.
    """

    constants: tuple[Any, ...]
    steps: tuple[Step, ...]

    def pool(self, x: Any) -> list[Any]:
        pool = [x, *self.constants]
        for step in self.steps:
            pool.append(step.do(*(pool[at] for at in step.reads)))
        return pool

    def __call__(self, x: Any) -> Any:
        """The last two arrays that depend on the input and are real, as one vector."""
        outs = [real(value) for value in self.pool(x)[1 + len(self.constants) :]][-2:]
        return jnp.concatenate([out.ravel() for out in outs or [x]])

    def __str__(self) -> str:
        first = 1 + len(self.constants)
        lines = [
            f"  {at}: constant {np.asarray(value).tolist()}"
            for at, value in enumerate(self.constants, 1)
        ]
        return "\n".join(
            lines + [f"  {at}: {s.name} of {s.reads}" for at, s in enumerate(self.steps, first)]
        )


def real(z: Any) -> Any:
    """Any array as floats; what is a float stays what it is."""
    if jnp.issubdtype(z.dtype, jnp.complexfloating):
        return jnp.real(z)
    return z.astype("float64")


# Steps


@jax.custom_jvp
def straight_through(a, b):
    """A product with a wrong derivative of its own: certificates must not rest on it."""
    return a @ b


straight_through.defjvp(
    lambda primals, tangents: (straight_through(*primals), 10 * (tangents[0] @ primals[1]))
)


@jax.custom_vjp
def clipped(z):
    return jnp.tanh(z) * 3


clipped.defvjp(lambda z: (clipped(z), None), lambda kept, g: (0 * g,))


def loop(body: Callable[..., Any], z: Any, **how: Any) -> Any:
    """A scan along the entries of a vector: what it carries last, and what it gave."""
    last, ys = lax.scan(body, jnp.zeros((), z.dtype), z.ravel(), **how)
    return last + ys


def carried_truth(z: Any) -> Any:
    seen, ys = lax.scan(
        lambda seen, a: (seen | (a > 0.3), jnp.where(seen, a, -a)), jnp.array(False), z.ravel()
    )
    return jnp.where(seen, ys, 2 * ys)


def late(z: Any) -> Any:
    """The second part of the carry depends on the input only from the second round on."""
    step = lambda state, a: ((a, 0.5 * state[0] + state[1]), state[1])
    return lax.scan(step, (jnp.ones((), z.dtype), jnp.zeros((), z.dtype)), z.ravel())[1]


def window(name: str, z: Any) -> Any:
    init = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]
    of = {"add": lax.add, "max": lax.max, "min": lax.min}[name]
    return lax.reduce_window(z.ravel(), np.asarray(init, z.dtype), of, (2,), (1,), "SAME")


UNARY: dict[str, Callable[[Any], Any]] = {  # of a float array
    **{
        name: getattr(jnp, name)
        for name in ("negative", "abs", "sign", "floor", "ceil", "round", "exp", "exp2")
    },
    **{
        name: getattr(jnp, name)
        for name in ("expm1", "log", "log1p", "sqrt", "cbrt", "square", "tanh", "sinh")
    },
    **{
        name: getattr(jnp, name)
        for name in ("arcsinh", "arctan", "sin", "cosh", "arccosh", "arctanh", "reciprocal")
    },
    **{
        name: getattr(jnp, name)
        for name in ("isnan", "isinf", "isfinite", "signbit", "nan_to_num", "trunc", "tan")
    },
    **{
        f"lax.{name}": getattr(lax, name)
        for name in ("rsqrt", "erf", "erfc", "logistic", "lgamma", "digamma")
    },
    **{
        f"nn.{name}": getattr(jax.nn, name)
        for name in ("relu", "leaky_relu", "elu", "gelu", "silu", "softplus")
    },
    **{
        f"nn.{name}": getattr(jax.nn, name)
        for name in ("softmax", "log_softmax", "standardize", "relu6", "celu")
    },
    **{
        f"cum{name}": partial(getattr(lax, f"cum{name}"), axis=0)
        for name in ("sum", "max", "min", "prod")
    },
    "cumsum reverse": partial(lax.cumsum, axis=0, reverse=True),
    "cumlogsumexp": partial(lax.cumlogsumexp, axis=0, reverse=True),
    **{f"power {k}": partial(lax.integer_pow, y=k) for k in (-2, -1, 0, 2, 3, 4)},
    **{
        name: getattr(jnp, name)
        for name in ("sum", "max", "min", "prod", "mean", "var", "std", "median", "ptp")
    },
    "norm": lambda z: jnp.sqrt((z * z).sum()),
    "logsumexp": jax.nn.logsumexp,
    "argmax": jnp.argmax,
    "argsort": lambda z: jnp.argsort(z.ravel()),
    "sort": lambda z: jnp.sort(z.ravel()),
    "sort columns": lambda z: jnp.sort(z, axis=0),
    "top_k": lambda z: lax.top_k(z.ravel(), 3)[0],
    "transpose": jnp.transpose,
    "flip": jnp.flip,
    "roll": partial(jnp.roll, shift=1),
    "tile": lambda z: jnp.tile(z.ravel(), 2)[1:5],
    "split": lambda z: jnp.concatenate(jnp.split(z.ravel(), 2)[::-1]) if z.size > 1 else z,
    "take filled": lambda z: jnp.take(z.ravel(), np.array([0, 1, 9]), mode="fill"),
    "take clipped": lambda z: jnp.take(z.ravel(), np.array([0, 0, 9]), mode="clip"),
    "slice": lambda z: lax.dynamic_slice(z.ravel(), (np.int32(0),), (1,)),
    "pad": lambda z: jnp.pad(z.ravel(), (1, 0), constant_values=-np.inf)[:4],
    "stop_gradient": lambda z: lax.stop_gradient(2 * z),
    "reduce_precision": lambda z: lax.reduce_precision(z, 8, 2),
    "bitcast": lambda z: lax.bitcast_convert_type(z.astype("float32"), "int32"),
    "where positive": lambda z: jnp.where(z > 0, z, 0.1 * z),
    "where safe": lambda z: jnp.where(z > 0.5, jnp.log(jnp.where(z > 0.5, z, 1.0)), z),
    "where root": lambda z: jnp.where(z > 0, jnp.sqrt(z), 0.0),
    "where not nan": lambda z: jnp.where(jnp.isnan(jnp.log(z)), 5.0, 1.0),
    "double where": lambda z: jnp.where(z != z, 7.0, z),
    "clip": lambda z: jnp.clip(z, -0.5, 0.7),
    "clip swapped": lambda z: lax.clamp(jnp.full_like(z, 0.4), z, jnp.full_like(z, -0.4)),
    "remainder": lambda z: z % 0.7,
    "floor_divide": lambda z: z // 0.3,
    "rem": lambda z: lax.rem(z, jnp.full_like(z, 0.6)),
    "power float": lambda z: jnp.power(jnp.abs(z), 1.5),
    "power base": lambda z: jnp.power(2.0, z),
    "last bit": lambda z: (8 * z).astype("int32") & 1,
    "parity or": lambda z: (8 * z).astype("int32") | 1,
    "times 3": lambda z: z.astype("int32") * 3,
    "divided by 3": lambda z: z.astype("int32") // 3,
    "wrap": lambda z: (100 * z).astype("int32").astype("uint8"),
    "one_hot": lambda z: jax.nn.one_hot(jnp.argmax(z), 4),
    "count": lambda z: (z > 0).sum(),
    "share": lambda z: (z > 0.2).mean(),
    "all": lambda z: (z > -0.4).all(),
    "any": lambda z: (z > 0.4).any(),
    "parity of truths": lambda z: lax.reduce_xor((z > 0).ravel(), (0,)),
    "scatter set": lambda z: jnp.zeros(4, z.dtype).at[np.array([0, 0])].set(z.ravel()[0]),
    "scatter add": lambda z: jnp.ones(4, z.dtype).at[np.array([0, 2, 0])].add(z.ravel()[0]),
    "scatter multiply": lambda z: (
        jnp.ones(4, z.dtype).at[np.array([0, 2, 0])].multiply(z.ravel()[0])
    ),
    "scatter max": lambda z: jnp.zeros(4, z.dtype).at[np.array([0, 2])].max(z.ravel()[0]),
    "scatter apply": lambda z: z.ravel().at[0].apply(jnp.sin),
    "window add": partial(window, "add"),
    "window max": partial(window, "max"),
    "window min": partial(window, "min"),
    "window own": lambda z: lax.reduce_window(
        z.ravel(), jnp.zeros((), z.dtype), lambda a, b: a + b * b, (2,), (1,), "SAME"
    ),
    "reduce own": lambda z: lax.reduce(
        z.ravel(), jnp.zeros((), z.dtype), lambda a, b: a + jnp.abs(b), (0,)
    ),
    "reduce own product": lambda z: lax.reduce(
        z.ravel(), jnp.ones((), z.dtype), lambda a, b: a * b, (0,)
    ),
    "jit": lambda z: jax.jit(lambda z: jnp.tanh(z) - z)(z),
    "remat": lambda z: jax.checkpoint(lambda z: jnp.sin(z) if z.ndim > 2 else jnp.exp(-z * z))(z),
    "custom_vjp": clipped,
    "vmap": lambda z: jax.vmap(lambda a: a * a - a)(z.ravel()),
    "grad": jax.grad(lambda z: (jnp.tanh(z) ** 2).sum()),
    "grad max": jax.grad(lambda z: jnp.maximum(z, 0.2).sum()),
    "scan": partial(loop, lambda h, a: (0.5 * h + jnp.tanh(a), h - a)),
    "scan reverse": partial(loop, lambda h, a: (jnp.maximum(h, a), h * a), reverse=True),
    "scan no rounds": lambda z: lax.scan(lambda h, a: (h + a, h), z.ravel()[0], z.ravel()[:0])[0],
    "scan truth": carried_truth,
    "scan late": late,
    "associative_scan": lambda z: lax.associative_scan(jnp.multiply, z.ravel()),
    "while": lambda z: lax.while_loop(lambda s: s.sum() < 3, lambda s: s + 1, z),
    "fori": lambda z: lax.fori_loop(0, 3, lambda i, s: s * 0.5 + i, z),
    "cond": lambda z: lax.cond(z.sum() > 0, lambda s: s, lambda s: -s, z),
    "switch": lambda z: lax.switch(
        jnp.clip(z.sum().astype("int32"), 0, 1), [lambda s: s, lambda s: -s], z
    ),
    "map": lambda z: lax.map(lambda a: a * a, z.ravel()),
    "complex": lambda z: jnp.abs(lax.complex(z, z)) if z.dtype in (jnp.float64, jnp.float32) else z,
    "fft": lambda z: jnp.fft.fft(z.ravel().astype("float64")).real,
    "random": lambda z: z + jax.random.normal(jax.random.key(0), z.shape, z.dtype),
    "bits": lambda z: jax.random.uniform(jax.random.key(jnp.abs(z.sum()).astype("int32"))),
    "callback": lambda z: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(z.shape, z.dtype), z),
    "barrier": lambda z: lax.optimization_barrier(z),
    **{f"to {dtype}": lambda z, dtype=dtype: z.astype(dtype) for dtype in DTYPES},
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {  # of two float arrays of one dtype and shape
    **{
        name: getattr(jnp, name)
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
    **{
        name: getattr(jnp, name)
        for name in ("logaddexp", "hypot", "arctan2", "power", "nextafter", "fmax")
    },
    **{
        name: getattr(jnp, name)
        for name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
    },
    "lax.rem": lax.rem,
    "concatenate": lambda a, b: jnp.concatenate([a.ravel(), b.ravel()])[1:5],
    "stack": lambda a, b: jnp.stack([a.ravel()[:2], b.ravel()[-2:]]),
    "dot": lambda a, b: jnp.dot(a.ravel(), b.ravel()),
    "matmul": lambda a, b: square(a) @ square(b),
    "jit matmul": lambda a, b: jax.jit(jnp.matmul)(square(a), square(b)),
    "jit matmul of one": lambda a, b: jax.jit(lambda a, b: a @ a)(square(a), square(b)),
    "norm of both": lambda a, b: jax.jit(lambda a, b: squared_norm(jnp.concatenate([a, b])))(
        a.ravel(), b.ravel()
    ),
    "custom matmul": lambda a, b: straight_through(square(a), square(b)),
    "custom matmul of one": lambda a, b: same_twice(square(a), square(b)),
    "convolve": lambda a, b: lax.conv_general_dilated(
        a.ravel()[None, None], b.ravel()[None, None, :2], (1,), [(1, 0)]
    ).ravel(),
    "outer": lambda a, b: jnp.outer(a.ravel()[:2], b.ravel()[:2]),
    "pad with": lambda a, b: lax.pad(a.ravel(), b.ravel()[0], [(1, 0, 0)])[:4],
    "update": lambda a, b: lax.dynamic_update_slice(a.ravel(), b.ravel()[:1], (np.int32(2),)),
    "scatter add of": lambda a, b: a.ravel().at[np.array([0, 1, 1, 7])].add(b.ravel()[0]),
    "clamp": lambda a, b: lax.clamp(jnp.minimum(a, b), a * b, jnp.maximum(a, b)),
    "larger": lambda a, b: jnp.where(a > b, a, b),
    "smaller": lambda a, b: jnp.where(a >= b, b, a),
    "mixed up": lambda a, b: jnp.where(a < b, a, -b),
    "two truths": lambda a, b: jnp.where((a > 0) & ~(b > 0), a - b, a + b),
    "either truth": lambda a, b: jnp.where((a > 0) | (b < a), a * b, b),
    "exclusive": lambda a, b: jnp.where((a > 0) ^ (b > 0), a, b),
    "gather by": lambda a, b: a.ravel()[b.ravel()[:2].astype("int32") % a.size],
    "slice by": lambda a, b: lax.dynamic_slice(a.ravel(), (b.ravel()[0].astype("int32"),), (1,)),
    "sort by": lambda a, b: lax.sort([a.ravel(), b.ravel()], num_keys=1)[1],
    "solve": lambda a, b: jnp.linalg.solve(square(a) + 3 * jnp.eye(2, dtype=a.dtype), square(b)),
    "quotient": lambda a, b: a / (1 + jnp.abs(b)),
    "normalised": lambda a, b: (a - b) / jnp.sqrt(((a - b) ** 2).mean() + 0.1),
    "linear solve": lambda a, b: lax.custom_linear_solve(
        lambda y: 2 * y + a, b, lambda m, b: b / 2
    ),
}


@jax.custom_jvp
def same_twice(a, b):
    return a @ a


same_twice.defjvp(lambda primals, tangents: (same_twice(*primals), tangents[0] @ primals[1]))


def square(z: Any) -> Any:
    return jnp.broadcast_to(z, (2, 2)) if z.size == 1 else z.ravel().reshape(2, 2)


def squared_norm(z: Any) -> Any:
    return jnp.dot(z, z)


def fitted(z: Any) -> Any:
    """A scalar, a vector of 4 or a matrix of 2 x 2, whatever came."""
    if z.shape in ((), (SIZE,), (2, 2)):
        return z
    return jnp.resize(z, (SIZE,))


def in_floats(z: Any, dtype: Any = None) -> Any:
    """A float array of this dtype; of any float dtype, as it is."""
    if jnp.issubdtype(z.dtype, jnp.complexfloating):
        z = jnp.real(z)
    return (
        z
        if jnp.issubdtype(z.dtype, jnp.floating) and dtype is None
        else z.astype(dtype or "float64")
    )


def unary(f: Callable[..., Any], a: Any) -> Any:
    a = in_floats(a)
    return fitted(f(a if a.ndim else jnp.broadcast_to(a, (SIZE,))))


def binary(f: Callable[..., Any], a: Any, b: Any) -> Any:
    a = in_floats(a)
    b = in_floats(b, a.dtype)
    a, b = (jnp.broadcast_to(v.ravel() if v.size > 1 else v, (SIZE,)) for v in (a, b))
    return fitted(f(a, b))


def affine(W: Any, b: Any, a: Any) -> Any:
    """A dense layer keeps the numbers within bounds and ties them together."""
    a = in_floats(a, "float64")
    return W @ jnp.broadcast_to(a.ravel() if a.size > 1 else a, (SIZE,)) + b


def drawn(seed: int, length: int) -> Program:
    """A random program."""
    rng = np.random.default_rng(seed)
    constants = tuple(jnp.asarray(rng.normal(size=SIZE).round(2)) for _ in range(2))
    steps: list[Step] = []
    for at in range(length):
        pool = 1 + len(constants) + at
        recent = lambda pool=pool: int(
            rng.integers(max(0, pool - 3) if rng.random() < 0.7 else 0, pool)
        )
        kind = rng.random()
        if kind < 0.25:
            W = jnp.asarray(rng.normal(size=(SIZE, SIZE)) / 2)
            b = jnp.asarray(rng.normal(size=SIZE))
            steps.append(Step("dense", partial(affine, W, b), (recent() if at else 0,)))
        elif kind < 0.7:
            name = str(rng.choice(list(UNARY)))
            steps.append(Step(name, partial(unary, UNARY[name]), (recent() if at else 0,)))
        else:
            name = str(rng.choice(list(BINARY)))
            first = recent()
            steps.append(
                Step(
                    name,
                    partial(binary, BINARY[name]),
                    (first, first if rng.random() < 0.2 else recent()),
                )
            )
    return Program(constants, tuple(steps))


# Checks


class Violation(AssertionError):
    """A program whose bounds do not hold."""


def refused(call: Callable[[], Any]) -> tuple[str | None, Any]:
    """The operation that was refused, or what the call gave; any other exception is a violation."""
    try:
        return None, call()
    except Exception as error:
        found = REFUSAL.search(str(error)) if isinstance(error, ValueError) else None
        if found is None:
            raise Violation(f"{type(error).__name__} instead of bounds: {error}") from error
        return found[1], None


def bounded_part(program: Program, rng: Any, tally: Counter) -> Program:
    """The program without most of the steps that are refused, and those that read them."""
    shape = jax.ShapeDtypeStruct((SIZE,), jnp.float64)
    trial = lambda p: refused(lambda: jax.eval_shape(lambda x: interval_bounds(p, x, x), shape))[0]
    while trial(program) is not None:
        low, high = (
            0,
            len(program.steps),
        )  # the first `low` steps have bounds, the first `high` have not
        while high - low > 1:
            middle = (low + high) // 2
            has = trial(Program(program.constants, program.steps[:middle])) is None
            low, high = (middle, high) if has else (low, middle)
        tally[f"refused step: {program.steps[low].name}"] += 1
        tally["refused steps"] += 1
        if rng.random() < KEEP_REFUSED:
            return program
        program = without(program, low)
    return program


def without(program: Program, at: int) -> Program:
    """The program with a step replaced by what it reads first."""
    step = program.steps[at]
    same = Step("same", lambda a, *_: fitted(a) + 0 * in_floats(a), (step.reads[0],))
    return Program(program.constants, (*program.steps[:at], same, *program.steps[at + 1 :]))


def boxes(rng: Any, *, equal: bool) -> tuple[Any, Any]:
    """Centres and radii; the same radius along each axis, if asked. Zeros and round numbers are
    where domains end.
    """
    x = rng.normal(size=(BOXES, SIZE)).round(2) * rng.choice([0.0, 1.0, 3.0], (BOXES, 1))
    radius = rng.choice([0.0, 0.05, 0.5, 2.0], (BOXES, SIZE), p=[0.1, 0.3, 0.4, 0.2])
    return x, np.broadcast_to(radius[:, :1], radius.shape) if equal else radius


def points(rng: Any) -> Any:
    """Shifts from the centre: corners, the centre, points inside, and points on edges."""
    corners = np.array(list(product([-1.0, 1.0], repeat=SIZE)))
    inside = rng.uniform(-1, 1, (POINTS - len(corners), BOXES, SIZE))
    inside[0] = 0
    inside[: len(inside) // 2] = (
        np.where(rng.random(inside[: len(inside) // 2].shape) < 0.7, 1, 0) * inside[1]
    )
    return np.concatenate([np.broadcast_to(corners[:, None], (len(corners), BOXES, SIZE)), inside])


def nearby(rng: Any, shifts: Any, ys: Any) -> Any:
    """Shifts that are changed a little, or along one axis, from those with the least or the largest
    of an output.
    """
    found = []
    for k in range(POINTS):
        sign = (-1) ** (k % 2)
        y = ys[:, :, rng.integers(ys.shape[2])]
        best = np.argmax(np.where(np.isnan(y), -np.inf, sign * y), axis=0)
        step = rng.normal(size=(BOXES, SIZE)) * rng.choice([0.01, 0.1, 0.5])
        step = step * (np.arange(SIZE) == rng.integers(SIZE)) if k % 3 == 0 else step
        found.append(np.clip(shifts[best, np.arange(BOXES)] + step, -1, 1))
    return np.stack(found)


def compiled(program: Program, *, linear: bool) -> Callable[..., Any]:
    """Of boxes and points in them: the outputs, the largest number on the way, and the bounds."""

    def outputs(x: Any) -> tuple[Any, Any]:
        sizes = [
            jnp.abs(real(v)).max(initial=0, where=jnp.isfinite(real(v))) for v in program.pool(x)
        ]
        return program(x).astype("float64"), jnp.stack([v.astype("float64") for v in sizes]).max()

    def bounds(x: Any, radius: Any) -> Any:
        wide = {"interval_bounds": interval_bounds(program, x - radius, x + radius)}
        if not linear:
            return wide
        ball = Linf(radius[0])
        y = jnp.array(0)
        margins = {kind: certified_margins(program, x, y, ball, bounds=kind) for kind in MARGINS}
        return wide | {"linear_bounds": linear_bounds(program, x, ball)} | margins

    return jax.jit(lambda x, r, xs: (lax.map(jax.vmap(outputs), xs), jax.vmap(bounds)(x, r)))


def check(seed: int, tally: Counter, *, linear: bool = True) -> None:
    """Draws the program of a seed, bounds it, and looks for points outside."""
    rng = np.random.default_rng([seed, 1])
    program = drawn(seed, int(rng.integers(1, 8)))
    try:
        jax.eval_shape(program, jax.ShapeDtypeStruct((SIZE,), jnp.float64))
    except (
        TypeError,
        ValueError,
        NotImplementedError,
    ):  # JAX itself does not take it, for instance for its dtypes
        tally["not valid"] += 1
        return
    tally["programs"] += 1
    try:
        program = bounded_part(program, rng, tally)
        examine(program, rng, tally, linear=linear)
    except Violation as error:
        raise Violation(f"seed {seed}: {error}\n{program}") from error


def examine(program: Program, rng: Any, tally: Counter, *, linear: bool = True) -> None:
    """Looks for points of random boxes where a program leaves its bounds."""
    x, radius = boxes(rng, equal=linear)
    f = compiled(program, linear=linear)
    shifts = points(rng)
    inside = lambda shifts: (
        x + radius * (1 - 1e-9) * shifts
    )  # not quite the whole box: bounds hold up to rounding
    name, found = refused(lambda: jax.device_get(f(x, radius, inside(shifts))))
    if name is not None:
        tally["refused"] += 1
        tally[f"refused operation: {name}"] += 1
        return
    tally["bounded"] += 1
    tally["bounded by lines"] += linear
    (ys, scale), bounds = found
    for _ in range(ROUNDS - 1):
        more = nearby(rng, shifts, ys)
        (new, size), _ = jax.device_get(f(x, radius, inside(more)))
        shifts = np.concatenate([shifts, more])
        ys = np.concatenate([ys, new])
        scale = np.concatenate([scale, size])
    kinds = {str(v.dtype) for v in jax.eval_shape(program.pool, jnp.zeros(SIZE))}
    eps = max(float(jnp.finfo(kind).eps) for kind in kinds if "float" in kind)
    slack = 200 * eps * (1 + scale.max(0))[:, None]  # for each box
    tally["finite"] += bool(np.isfinite(bounds["interval_bounds"][0]).any())
    found = compared(bounds, ys, slack)
    if found is not None:
        what, box, out, y, at = found
        where = (
            f"x = {x[box].tolist()}, radius = {radius[box].tolist()}, at "
            f"{inside(shifts)[at, box].tolist()}"
        )
        raise Violation(f"{what}: output {out} is {y}\n  {where}")


def compared(bounds: dict[str, Any], ys: Any, slack: Any) -> tuple[str, int, int, str, int] | None:
    """The first bound that does not hold: which, of what box and output, the value, and the
    point.
    """
    for what, bound in bounds.items():
        low, high = (
            np.asarray(b, np.float64) for b in ((bound, np.inf) if what in MARGINS else bound)
        )
        values = gaps(ys) if what in MARGINS else ys
        with np.errstate(invalid="ignore"):
            room = np.where(np.isinf(values), 0.0, 1e-7 * (1 + np.abs(values)) + slack)
            bad = (values < low - room) | (values > high + room)
        bad |= np.isnan(values) & (np.isfinite(low) | np.isfinite(high))
        if bad.any():
            at, box, out = np.argwhere(bad)[0]
            ends = [float(np.broadcast_to(end, bad.shape[1:])[box, out]) for end in (low, high)]
            return what, int(box), int(out), f"{values[at, box, out]}, not in {ends}", int(at)
    if "linear_bounds" in bounds:
        (low, high), (least, most) = bounds["linear_bounds"], bounds["interval_bounds"]
        worse = (low < least - slack) | (high > most + slack)
        if worse.any():
            box, out = np.argwhere(worse)[0]
            return "linear_bounds", int(box), int(out), "wider than by intervals", 0
    return None


def gaps(ys: Any) -> Any:
    """By how much the first output is above each other. Two infinities are no better than equal;
    NaN has no gap.
    """
    with np.errstate(invalid="ignore"):
        found = ys[:, :, :1] - ys
    both = np.isinf(ys) & (ys == ys[:, :, :1])
    found = np.where(both, -np.inf, found)
    found[:, :, 0] = 0
    return found


def main() -> None:
    reads = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reads.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    reads.add_argument("--first", type=int, default=0, help="the first seed")
    reads.add_argument("--count", type=int, default=None, help="how many seeds")
    reads.add_argument(
        "--linear-every", type=int, default=1, help="check linear bounds for every n-th seed only"
    )
    reads.add_argument("--all", action="store_true", help="go on after a violation")
    reads.add_argument(
        "--optimized",
        action="store_true",
        help="compile with all optimizations, which takes longer",
    )
    options = reads.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", not options.optimized)
    end = time.monotonic() + 60 * options.minutes
    tally = Counter()
    for seed in count(options.first):
        if time.monotonic() > end or (
            options.count is not None and seed >= options.first + options.count
        ):
            break
        try:
            check(seed, tally, linear=seed % options.linear_every == 0)
        except Violation as error:
            tally["violations"] += 1
            print(error, flush=True)
            if not options.all:
                break
        if seed % 100 == 99:
            jax.clear_caches()  # no program is run again
            print(f"up to seed {seed}: {summary(tally)}", flush=True)
    print(
        f"{summary(tally)}\n"
        + "\n".join(f"  {n:5d} {name}" for name, n in tally.most_common() if ":" in name)
    )


def summary(tally: Counter) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(tally.items()) if ":" not in name)


if __name__ == "__main__":
    main()
