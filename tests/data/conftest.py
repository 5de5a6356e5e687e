"""What the tests of data share: a cache of their own, a web server, and package clients made of
paper.
"""

import http.server
import sys
import threading
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """No test sees or touches the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "thetax" / "data"


class Server(http.server.ThreadingHTTPServer):
    """Serves `pages`; cuts the next answers short as `cuts` says; remembers the ranges asked
    for.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.asked: list[str | None] = []
        self.ranges = True

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args):
        pass

    def do_GET(self):
        page = self.server.pages.get(self.path[1:])
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if page is None:
            return self.send_error(404)
        start = int(wanted[6:-1]) if wanted and self.server.ranges else 0
        if start >= len(page) and start:
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(page) - 1}/{len(page)}")
        self.send_header("Content-Length", str(len(page) - start))
        self.end_headers()
        end = start + self.server.cuts.pop(0) if self.server.cuts else len(page)
        self.wfile.write(page[start:end])


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(tmp_path, monkeypatch):
    """`client(name, body)` puts a program of that name, a few lines of Python, alone on the
    PATH.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    python = sys.executable

    def make(name: str, body: str) -> Path:
        program = folder / name
        program.write_text(f"#!{python} -S\nimport os, sys, time\n{body}\n")
        program.chmod(0o755)
        if name == "pip":
            monkeypatch.setattr(sys, "executable", str(program))
        return program

    return make
