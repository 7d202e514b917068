"""The real servers that the tests of this layer share: a fixture each, started for the tests of one file.

A server that can't be had on this machine is named at the end of the run, with the reason; its tests do not run.
"""

from __future__ import annotations

import http.server
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from servers import Elasticsearch, Kafka, OpenSearch, Server, Unavailable


def obtained(make: Callable[[], Server]) -> Server:
    """A server, not yet started; where it can't be had, the test that asked does not run."""
    try:
        return make()
    except Unavailable as error:
        pytest.skip(f"{getattr(make, '__name__', 'server')} can't be had here: {error}")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder of the tests of one file; another user can enter it."""
    path = Path(tempfile.mkdtemp(prefix="joblens-service-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def place(folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of one test, named as the test."""
    path = folder / request.node.name.replace("[", "-").strip("]")
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def server() -> Callable[[type[Server], Any], Server]:
    """Makes one of the servers, not yet started: server(Kafka, folder)."""

    def make(kind: type[Server], *arguments: Any, **options: Any) -> Server:
        def of_this_kind() -> Server:
            return kind(*arguments, **options)

        of_this_kind.__name__ = kind.__name__
        return obtained(of_this_kind)

    return make


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[type[http.server.BaseHTTPRequestHandler]], str]]:
    """Serves HTTP by a handler of the test's; returns the URL."""
    servers = []

    def start(handler: type[http.server.BaseHTTPRequestHandler]) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _running(kind: type[Server]) -> Any:
    @pytest.fixture(scope="module", name=kind.__name__.lower())
    def running(folder: Path, server: Any) -> Iterator[Server]:
        with server(kind, folder / kind.__name__.lower()) as started:
            yield started

    return running


kafka, opensearch, elasticsearch = _running(Kafka), _running(OpenSearch), _running(Elasticsearch)
