"""The sides of the Hopfield benchmark do the same work."""

from bench import hopfield


def test_all_sides_agree_on_a_small_network(monkeypatch):
    """Sign for sign, and the patterns come back."""
    monkeypatch.setattr(hopfield, "D", 400)
    monkeypatch.setattr(hopfield, "N", 21)
    rows = hopfield.rows()
    assert [row.peer for row in rows] == ["numpy, overlaps", "numpy, matrix", "numpy, overlaps"]
    for row in rows:
        row.check()
        assert row.ours() > 0
        assert row.work.operations > 0
    assert "21" in hopfield.count()
