"""How the hub speaks to its store, without one: errors by their names, and an end for all questions of an answer."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused, StoreTooMuch, StoreUnfit, _error_of
from condor_joblens.hub.store.schema import SAMPLES
from condor_joblens.hub.store.server import leaves_the_tables


@pytest.mark.parametrize(
    "name, kind",
    [
        ("TIMEOUT_EXCEEDED", StoreTooMuch),
        ("TOO_MANY_ROWS_OR_BYTES", StoreTooMuch),
        ("TOO_MANY_ROWS", StoreTooMuch),
        ("MEMORY_LIMIT_EXCEEDED", StoreTooMuch),
        ("CANNOT_PARSE_INPUT_ASSERTION_FAILED", StoreRefused),
        ("NOT_ENOUGH_SPACE", StoreGone),
    ],
)
def test_an_error_is_known_by_the_name_that_stands_last(name: str, kind: type[Exception]) -> None:
    said = (
        f"Code: 1. DB::Exception: {'x' * 1000} in a query about (TIMEOUT_EXCEEDED_SOON): ({name}) (version 26.9.1.1)\n"
    )
    assert _error_of(said) is kind
    assert _error_of(f"Code: 1. DB::Exception: where Note = '(MEMORY_LIMIT_EXCEEDED)'. ({name})") is kind


@pytest.mark.parametrize(
    "address, why",
    [
        ("http://store.example.org:8123", "in clear: write https"),
        ("https://hub:perch@store.example.org", "seen in the list of processes"),
        ("store.example.org:8123", "is no address"),
        ("https://store.example.org:x", "is no address"),
        ("https://store.example.org/?user=hub", "is no address"),
        ("clickhouse://store.example.org", "is no address"),
    ],
)
def test_an_address_at_which_no_store_can_be_is_refused(address: str, why: str) -> None:
    with pytest.raises(JobLensError, match=why):
        Store(address)
    assert Store("https://hub@store.example.org") and Store("http://[::1]:8123")


def served(status: int, body: bytes) -> Iterator[str]:
    """An address at which each question has this answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://hub@127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "status, body, why",
    [
        (
            403,
            b"Code: 516. DB::Exception: hub: Authentication failed. (AUTHENTICATION_FAILED)",
            "Authentication failed",
        ),
        (403, b"Code: 497. DB::Exception: hub: Not enough privileges. (ACCESS_DENIED)", "Not enough privileges"),
        (404, b"Code: 115. DB::Exception: Unknown setting input_format_x. (UNKNOWN_SETTING)", "Unknown setting"),
        (200, b"<html>It works!</html>", "is no ClickHouse"),
        (200, b"{}", "is no ClickHouse"),
        (200, b"", "is no ClickHouse"),
    ],
)
def test_a_store_that_a_hub_can_t_use_ends_its_start(status: int, body: bytes, why: str) -> None:
    for address in served(status, body):
        with pytest.raises(StoreUnfit, match=why):
            Store(address).begin()


class Server(Store):
    """Which settings of tables it knows; None: it does not say."""

    def __init__(self, known: Sequence[str] | None) -> None:
        super().__init__("unix:/nowhere")
        self.known, self.said = known, list[str]()

    def _post(self, words: Mapping[str, str], body: bytes, more: Mapping[str, str] | None = None) -> bytes:
        query = words["query"]
        if "merge_tree_settings" in query and self.known is None:
            raise StoreUnfit("Not enough privileges")
        if "merge_tree_settings" in query:
            return b"".join(json.dumps({"name": name}).encode() + b"\n" for name in self.known or ())
        if "engine_full" in query:
            return b'{"engine_full": "ReplacingMergeTree SETTINGS index_granularity = 8192"}\n'
        self.said.append(query)
        return b""


@pytest.mark.parametrize("known", [None, (), ("index_granularity",), ("index_granularity", *list(SAMPLES.lean)[1:])])
def test_tables_have_the_settings_that_the_store_knows(known: Sequence[str] | None) -> None:
    server = Server(known)
    server.prepare()
    expected = {name for name in SAMPLES.lean if name in (known or ())}
    for begin in ("CREATE TABLE IF NOT EXISTS samples", "ALTER TABLE samples MODIFY SETTING"):
        said = "".join(query for query in server.said if query.startswith(begin))
        assert {name for name in SAMPLES.lean if f"{name} = " in said} == expected


def test_a_store_that_is_not_there_yet_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    for address in served(500, b"Code: 243. DB::Exception: no space. (NOT_ENOUGH_SPACE)"):
        Store(address).begin()
        assert "NOT_ENOUGH_SPACE" in capsys.readouterr().err
    Store(address).begin()
    assert "does not answer" in capsys.readouterr().err


def test_all_questions_of_an_answer_end_by_its_time(tmp_path: Path) -> None:
    """A store that says nothing keeps nobody longer than that; and then no further question is asked."""
    path = tmp_path / "store.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        store = Store(f"unix:{path}").until(time.monotonic() + 0.3)
        raised: list[Exception] = []

        def ask() -> None:
            for _ in range(3):
                try:
                    store.ask("SELECT 1")
                except StoreGone as error:
                    raised.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(60)
        assert len(raised) == 3 and "too long for one answer" in str(raised[-1])


@pytest.mark.parametrize(
    "query, word",
    [
        ("SELECT file('/x')", "file"),
        ("SELECT `FILE`/* x */('/x')", "FILE"),
        ("SELECT 1 -- x\nINTO\nOUTFILE 'x'", "OUTFILE"),
        ("SELECT * FROM urlCluster('c', 'x')", "urlCluster"),
        ("SELECT 1 SETTINGS readonly = 0", "SETTINGS"),
        ("SELECT 'file(', 'it''s settings', \"profile\", fileless FROM samples", ""),
        ("SELECT Fs.Reads, Settings2 FROM samples WHERE Note = {w0:String}", ""),
    ],
)
def test_a_question_that_leaves_the_tables_is_known(query: str, word: str) -> None:
    assert leaves_the_tables(query).lower().startswith(word.lower()) and bool(leaves_the_tables(query)) == bool(word)
