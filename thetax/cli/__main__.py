"""`python -m thetax.cli` is `thetax`."""

from . import main

if __name__ == "__main__":
    main()
