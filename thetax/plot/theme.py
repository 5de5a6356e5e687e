"""The colours and styles of all figures: a light and a dark theme with the same roles.

Lines have the colours of Okabe and Ito, which readers with common forms of colour blindness can
distinguish, a little darker in the light theme and lighter in the dark one. Every role has its own
colour, so that a page can replace the colours by those of the other theme.
"""

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

import matplotlib as mpl
from cycler import cycler

WIDTH = 5.2  # inches; still readable on a phone


@dataclass(frozen=True)
class Theme:
    """The colours of a figure, one per role."""

    paper: str
    ink: str
    muted: str  # tick labels and notes
    grid: str
    blue: str
    orange: str
    green: str
    purple: str

    @property
    def roles(self) -> dict[str, str]:
        """The colour of each role."""
        return asdict(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """Colours of lines, the most important first."""
        return self.blue, self.orange, self.green, self.purple

    def apply(self) -> AbstractContextManager[None]:
        """A context manager in which Matplotlib uses this theme."""
        return mpl.rc_context(
            {
                "figure.facecolor": self.paper,
                "savefig.facecolor": self.paper,
                "axes.facecolor": "none",
                "axes.edgecolor": self.grid,
                "axes.labelcolor": self.ink,
                "axes.titlecolor": self.ink,
                "axes.titlesize": 10,
                "axes.titleweight": "bold",
                "axes.titlelocation": "left",
                "axes.labelsize": 10,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "axes.prop_cycle": cycler(color=self.lines),
                "grid.color": self.grid,
                "grid.linewidth": 0.6,
                "text.color": self.ink,
                "xtick.color": self.grid,
                "ytick.color": self.grid,
                "xtick.labelcolor": self.muted,
                "ytick.labelcolor": self.muted,
                "xtick.labelsize": 9,
                "ytick.labelsize": 9,
                "font.size": 9.5,
                "font.family": ["DejaVu Sans"],
                "lines.linewidth": 1.8,
                "lines.markersize": 5,
                "svg.fonttype": "none",
            }
        )


# Colours on a white background.
LIGHT = Theme(
    paper="#ffffff",
    ink="#1c2733",
    muted="#5b6875",
    grid="#dde3e9",
    blue="#0069a8",
    orange="#c8520b",
    green="#00805e",
    purple="#a8508a",
)
# Colours on a dark background.
DARK = Theme(
    paper="#15191e",
    ink="#e8ebef",
    muted="#9ba7b4",
    grid="#313a44",
    blue="#5ab4ef",
    orange="#f2914e",
    green="#35c79c",
    purple="#dd97c6",
)
