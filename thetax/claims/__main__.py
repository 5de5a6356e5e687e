"""`python -m thetax.claims FOLDER` writes the syllabus, the errata and the bibliography there."""

import sys
from pathlib import Path

from . import find_claims
from .engine.pages import PAGES

if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python -m thetax.claims FOLDER")
    for name, page in PAGES.items():
        (Path(sys.argv[1]) / name).write_text(page(find_claims()), "utf-8")
