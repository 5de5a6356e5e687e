"""Benchmarks against other libraries: `python -m bench [NAME ...] [--json FILE]`.

A subject is a module with `describe()`, which describes the work, and `rows()`, the comparisons of
thetax with a peer. Both sides are first checked to compute the same; then they are timed in turns.
"""

SUBJECTS = (
    "mlp",
    "start",
    "resume",
    "claims",
    "restarts",
    "tune",
    "recurrent",
    "conv",
    "encoder",
    "language",
    "gp",
    "infinite",
    "ntk",
    "graph",
    "attack",
)
