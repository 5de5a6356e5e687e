"""The command line: `thetax train | tune | look | verify | classify | embed | generate | list | data`.

The options of `thetax train RECIPE` are those of the recipe's signature; nothing is written down twice.
Exit codes: 0 done, 1 it failed, 2 an unknown command or option, 130 interrupted and resumable.
"""

from . import classify as classify
from . import embed as embed
from . import generate as generate
from . import listing as listing
from . import train as train
from . import tune as tune
from . import verify as verify
from .app import main as main
