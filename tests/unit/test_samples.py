"""Windows of samples: what is written is what is read."""

from __future__ import annotations

import pytest

from condor_joblens.profiling import samples
from condor_joblens.profiling.samples import FileKey, Frame, Kind, MappedFile, Stack, Window


def window() -> Window:
    """Two stacks, of one file, with a kernel and a Python frame."""
    main = Frame(Kind.NATIVE, 0x1130, 0)
    return Window(
        run=7,
        began=1000.0,
        until=1060.0,
        hz=99,
        samples=102,
        guessed=1,
        files=[MappedFile(FileKey(64769, 11, 16384, 123), "/home/a/</script>\n", "ab" * 20, True)],
        stacks={
            Stack(5, 6, "w\x1b[31m", (main, Frame(Kind.KERNEL, 0xFFFFFFFF81000000, function="do_sys"))): 99,
            Stack(5, 5, "w", (main, Frame(Kind.PYTHON, function="fit", source="a.py", line=3)), True, False): 1,
            Stack(5, 5, "w", (main,), calls=((Frame(Kind.PYTHON, function="f"),),), has_all_calls=False): 1,
        },
        interpreters={0: (0x1000, 0x2000)},
    )


def test_a_window_is_read_as_it_was_written() -> None:
    """Any text in it."""
    assert samples.decode(window().encode()) == window()


def test_a_frame_is_written_once() -> None:
    """However many stacks have it."""
    assert window().encode().count(b"4400") == 1  # 0x1130


def test_seconds_are_samples_by_their_rate() -> None:
    """At 99 a second."""
    found = window()
    assert [found.seconds_on_cpu(stack) for stack in found.stacks] == [1.0, 1 / 99, 1 / 99]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"run":1}', window().encode().replace(b'"frames":[[1', b'"frames":[[9')]
)
def test_what_is_no_window_is_refused(data: bytes) -> None:
    """By ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        samples.decode(data)
