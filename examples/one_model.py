"""One model from data to report in Python, as `thetax train digits` and `thetax look` do."""

import tempfile

import jax.random as jr
import optax

from thetax import data
from thetax.models import MLP
from thetax.recipes import Outcome
from thetax.report import look
from thetax.train import Silent, cross_entropy, descend, error_rate, evaluate, fit, weight_decay


def main(epochs: int = 30) -> float:
    key_split, key_init, key_fit = jr.split(jr.key(0), 3)
    xs, ys = data.load("digits").train
    train, test = data.split((xs, ys), 0.8, key=key_split, stratify=ys)
    result = fit(
        descend(weight_decay(cross_entropy, strength=1e-4), optax.adam(2e-3)),
        MLP.init(64, 64, 10, key=key_init),
        train,
        epochs=epochs,
        batch_size=64,
        key=key_fit,
        progress=Silent(),
    )
    error = evaluate(result.model, test, {"error": error_rate})["error"]
    table = {"network": {"test error %": 100 * error}}
    page = look(
        Outcome(
            model=result.model,
            train=train,
            test=test,
            objective=cross_entropy,
            history=result.history,
            classes=tuple("0123456789"),
            table=table,
        ),
        tempfile.mkdtemp(),
    )
    print(f"test error {100 * error:.2f} %; the report is {page}")
    return error


if __name__ == "__main__":
    main()
