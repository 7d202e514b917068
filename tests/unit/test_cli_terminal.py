"""Lines that fit a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli.terminal import Style, bar, style, table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours_only_on_a_terminal_and_not_with_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert style(Terminal()).paint("x", "red") == "\033[31mx\033[0m"
    assert style(io.StringIO()).paint("x", "red") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert style(Terminal()).paint("x", "red") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert style(Terminal()).paint("x", "red") == "x"


@given(st.floats(0, 10) | st.sampled_from([float("inf"), -1.0]), st.integers(1, 100))
def test_a_bar_has_its_width_whatever_the_share(share, width):
    text = bar(share, width)
    assert len(text) == width + 2
    assert text.count("|") == round(min(max(share, 0), 1) * width)


def test_a_table_aligns_and_gives_up_columns_where_it_is_too_wide():
    headers, rows = ("NAME", "SIZE", "NOTE"), [("a", "100", "long note"), ("bcdef", "1", "")]
    assert table(headers, rows, "NAME NOTE") == [
        "NAME   SIZE  NOTE",
        "a       100  long note",
        "bcdef     1",
    ]
    assert table(headers, rows, "NAME NOTE", 8, "SIZE") == ["NAME   NOTE", "a      long note", "bcdef"]
    assert table(headers, [("a", "1", "")], "NAME NOTE")[0] == "NAME  SIZE"


@given(st.text(max_size=300), st.integers(20, 200))
def test_cut_and_wrapped_lines_fit(text, width):
    look = Style(width)
    assert len(look.fit(text)) <= width
    assert all(len(line) <= max(width, 24) for line in look.wrapped(text, "ab  "))


@pytest.mark.parametrize("unit", ["GiB", "%", "h"])
def test_a_number_and_its_unit_stay_on_one_line(unit):
    assert Style(30).wrapped(f"twenty-six columns of words 12 {unit}")[-1].strip() == f"12 {unit}"
