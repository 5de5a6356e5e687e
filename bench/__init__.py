"""Side-by-side measurements against peers: `python -m bench [NAME ...] [--json FILE]`.

A subject is a file with `count()`, which says how much work a step is, and `rows()`, each of which
is one piece of work done by thetax and by a peer. Both must first be shown to compute the same;
then they take turns.
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
    "attack",
)
