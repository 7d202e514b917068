"""Text from strangers, made fit to print."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.errors import printable


@given(st.text())
def test_any_text_is_one_line_of_printable_ascii_and_stays_so(text: str) -> None:
    shown = printable(text, 1000)
    assert shown.isascii() and shown.isprintable() and len(shown) <= 1000
    assert printable(shown, 1000) == shown, "what was made fit by one is not escaped again by the next"


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_what_is_fit_to_print_is_left_alone(text: str) -> None:
    assert printable(text, 1000) == (text if len(text) <= 1000 else text[:997] + "...")


def test_the_rest_is_escaped() -> None:
    assert printable("a\nb\tc\x1b[1m \N{LATIN SMALL LETTER E WITH ACUTE}\udce9") == r"a\nb\tc\x1b[1m \xe9\udce9"
