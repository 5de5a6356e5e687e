"""Package clients as sources, with clients of a few lines in place of the real ones."""

import pytest

from thetax.data.io import package_clients as clients
from thetax.data.io.package_clients import fetch_archive

LEAVE = "open(sys.argv[0].split('/')[-1] + '-1.0.{}', 'w').write(' '.join(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("name", "program", "suffix", "words"),
    [
        ("npm", "npm", "tgz", "pack --silent --ignore-scripts toy@1.0"),
        ("apt", "apt-get", "deb", "download toy"),
        ("pip", "pip", "whl", "-m pip download --quiet --no-deps --only-binary=:all:"),
    ],
)
def test_each_client_is_called_as_it_wants(client, tmp_path, name, program, suffix, words):
    client(program, LEAVE.format(suffix))
    work = tmp_path / "work"
    work.mkdir()
    archive = fetch_archive(name, "toy", "1.0", work=work)
    assert archive.parent == work
    assert archive.read_text().startswith(words)


@pytest.mark.parametrize(("name", "program"), [("npm", "npm"), ("apt", "apt-get")])
def test_a_client_that_is_not_there(client, tmp_path, name, program):
    with pytest.raises(OSError, match=f"^{program} is not on this machine$"):
        fetch_archive(name, "toy", "1.0", work=tmp_path)


def test_a_client_that_fails_is_quoted(client, tmp_path):
    client(
        "apt-get",
        "print('Reading lists'); print('E: Unable to locate package toy', file=sys.stderr); "
        "sys.exit(100)",
    )
    with pytest.raises(
        OSError, match=r"^apt failed with exit status 100: E: Unable to locate package toy$"
    ):
        fetch_archive("apt", "toy", "1.0", work=tmp_path)


def test_a_client_that_leaves_nothing(client, tmp_path):
    client("npm", "pass")
    with pytest.raises(OSError, match="left 0 archives instead of one"):
        fetch_archive("npm", "toy", "1.0", work=tmp_path)


def test_a_client_that_never_ends_is_stopped(client, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "_TIMEOUT", 0.3)
    client("npm", f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(clients, "_POLL", 0.2)
    with pytest.raises(OSError, match="timed out after 0 s; the client was stopped"):
        fetch_archive("npm", "toy", "1.0", work=work)
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(int((tmp_path / "pid").read_text()), 0)


def test_an_unknown_client():
    with pytest.raises(ValueError, match="client must be 'pip', 'npm' or 'apt'; got 'cargo'"):
        clients.command("cargo", "toy", "1.0")


def test_the_growing_file_is_seen(client, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("thetax.progress._INTERVAL", 0.1)
    client("npm", "f = open('toy.tgz', 'wb'); f.write(bytes(500_000)); f.flush(); time.sleep(0.5)")
    work = tmp_path / "work"
    work.mkdir()
    fetch_archive("npm", "toy", "1.0", work=work, size=1_000_000)
    said = capsys.readouterr().err
    assert "thetax: fetching toy 1.0 with npm, 1.0 MB\n" in said
    assert "0.5 MB (50 %) after" in said
