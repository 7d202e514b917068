"""A sentence that is too long loses its end at a word, and says so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.model.metrics import ELLIPSIS, ROW, cut_words, shortened
from condor_joblens.publish.shortening import Draft, Text


def test_a_sentence_is_cut_at_a_word() -> None:
    assert shortened("the policy child did not answer in time", 30) == "the policy child did not..."
    assert shortened("did not answer; and more", 20) == "did not answer..."
    assert shortened("did not answer", 14) == "did not answer"


def test_a_path_that_is_longer_than_a_word_is_cut_within() -> None:
    assert shortened("no such file: /cvmfs/" + "x" * 200, 100) == "no such file: /cvmfs/" + "x" * 76 + ELLIPSIS


@given(st.text(), st.integers(0, 60))
def test_it_always_fits_and_only_ends_otherwise(value: str, size: int) -> None:
    told = shortened(value, size)
    whole = value.encode("utf-8", "backslashreplace").decode()
    assert len(told.encode()) <= size
    assert told == whole or whole.startswith(told[: -len(ELLIPSIS)] if told else "")


def test_notes_fit_their_column() -> None:
    told = cut_words("not heard in time " * 40, "note").decode()
    assert len(told) <= ROW["note"].itemsize and told.endswith(("heard...", "not...", "in...", "time..."))


def test_an_ad_that_is_too_long_cuts_words_at_words_too() -> None:
    draft = Draft("", {"Note": "did not hear the wrapper in time, and more words"}, {}, str)
    Text("Note", 20).give_way(draft, 10)
    assert draft.texts["Note"] == "did not hear the wrapper in time..."
    Text("Note", 0).give_way(draft, 100)
    assert draft.texts["Note"] == ""
    Text("Reason", 40).give_way(draft, 10)
    assert not draft.texts["Reason"]
