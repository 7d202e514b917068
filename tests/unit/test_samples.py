"""Windows of samples: what a count of samples is in seconds."""

from __future__ import annotations

from condor_joblens.profiling.samples import FileKey, Frame, Kind, MappedFile, Stack, Window


def test_seconds_are_samples_by_their_rate() -> None:
    """At 99 a second."""
    main = Frame(Kind.NATIVE, 0x1130, 0)
    kernel = Frame(Kind.KERNEL, 0xFFFFFFFF81000000, function="do_sys")
    file = MappedFile(FileKey(64769, 11, 16384, 123), "/home/a/program")
    stacks = {Stack(5, 6, "w", (main, kernel)): 99, Stack(5, 5, "w", (main,)): 1}
    found = Window(run=7, began=1000.0, until=1060.0, hz=99, files=[file], stacks=stacks)
    assert [found.seconds_on_cpu(stack) for stack in found.stacks] == [1.0, 1 / 99]
