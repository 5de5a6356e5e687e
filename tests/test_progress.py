"""Progress on stderr: a bar on a terminal, lines in logs."""

from thetax import progress


def test_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    with progress.progress("fetching a toy", total=2_000_000) as update:
        update(500_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "thetax: fetching a toy, 2.0 MB",
        "thetax: fetching a toy: 0.5 MB (25 %) after 0 s",
    ]


def test_lines_are_rate_limited(capsys):
    with progress.progress("fetching a toy") as update:
        for done in range(10_000):
            update(done)
    assert capsys.readouterr().err == "thetax: fetching a toy\n"


def test_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.progress("fetching a toy", total=2_000_000) as update:
        update(2_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching a toy" in err
    assert "2.0/2.0 MB" in err


def test_counts_start_after_some_seconds(capsys, monkeypatch):
    with progress.count_progress("rows of a kernel", 2000) as update:
        update(1000)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    with progress.count_progress("rows of a kernel", 2000) as update:
        update(1000)
        update(2000)
    assert capsys.readouterr().err.splitlines() == [
        "thetax: rows of a kernel: 1,000 of 2,000",
        "thetax: rows of a kernel: 2,000 of 2,000",
    ]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.count_progress("rows of a kernel", 2000) as update:
        update(2000)
    assert "2000/2000" in capsys.readouterr().err
