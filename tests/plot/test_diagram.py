"""Tests of Diagram and FigureGrid in both themes."""

import pickle

import pytest

from thetax.plot import DARK, LIGHT, Arrow, Box, Diagram, FigureGrid, Panel, draw

CODER = Diagram(
    {
        "x": Box(0, 0, 1, 6, "input"),
        "z": Box(3, 0, 1, 2, "code"),
        "=": Box(5, 0, 1, 1, "equals", frame=False),
    },
    [Arrow("x", "z", "C"), Arrow("z", "x", "back", bend=0.3)],
    title="Coder",
)
LINE = Panel("t", "loss", lines={"descent": ([0, 1], [1, 0])})


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_boxes_arrows_and_text_are_drawn(theme):
    (axes,) = draw(CODER, theme=theme).axes
    words = [text.get_text() for text in axes.texts if text.get_text()]
    assert sorted(words) == ["C", "back", "code", "equals", "input"]
    assert [patch.get_visible() for patch in axes.patches] == [True, True, False]
    assert [patch.get_height() for patch in axes.patches[:2]] == [6, 2]
    assert axes.get_title(loc="left") == "Coder"


def test_a_figure_grid_has_rows_of_two_and_hides_the_empty_panel(tmp_path):
    figure = draw(FigureGrid(LINE, CODER, LINE))
    assert len(figure.axes) == 4
    assert [axes.axison for axes in figure.axes] == [True, False, True, False]
    assert draw(FigureGrid(LINE)).get_size_inches()[1] < figure.get_size_inches()[1]
    figure.savefig(tmp_path / "sheet.svg")
    assert "code" in (tmp_path / "sheet.svg").read_text()


def test_boxes_far_from_the_origin_fill_the_figure():
    figure = draw(
        Diagram({"x": Box(40, 90, 1, 1, "far"), "z": Box(43, 99, 1, 1, "off")}, [Arrow("x", "z")])
    )
    figure.draw_without_rendering()  # a layout that fails warns, and a warning is an error
    place = figure.axes[0].get_position()
    assert min(place.width, place.height) > 0.9


def test_diagrams_can_be_pickled():
    assert pickle.loads(pickle.dumps(FigureGrid(CODER, LINE))) == FigureGrid(CODER, LINE)


def test_invalid_diagrams_raise():
    with pytest.raises(ValueError, match="the box 'y', which does not exist"):
        Diagram({"x": Box(0, 0, 1, 1)}, [Arrow("x", "y")])
    with pytest.raises(ValueError, match="expected at least one Panel or Diagram"):
        FigureGrid()
