"""How the hub speaks to its store, without one: errors by their names, and an end for all questions of an answer."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused, StoreTooMuch, _error_of
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
