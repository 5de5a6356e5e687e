"""All sides of the Hopfield benchmark agree."""

from bench import hopfield


def test_all_sides_agree_on_a_small_network(monkeypatch):
    """All recalled states are equal and close to the patterns."""
    monkeypatch.setattr(hopfield, "D", 400)
    monkeypatch.setattr(hopfield, "N", 21)
    rows = hopfield.rows()
    assert [row.peer for row in rows] == ["numpy, overlaps", "numpy, matrix", "numpy, overlaps"]
    for row in rows:
        row.check()
        assert row.ours() > 0
        assert row.work is not None
        assert row.work.operations > 0
    assert "21" in hopfield.describe()
