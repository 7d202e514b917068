"""`joblens trace ID`: what a person gets of the trace that stands for a job's life."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_socket import Server
from test_commands import Site
from test_commands_artifacts import about
from traced_samples import BEGUN, content, function, told

from condor_joblens.cli import kept_trace
from condor_joblens.cli.main import main
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request
from condor_joblens.profiles import perfetto, protobuf, trace_page, traced_calls
from condor_joblens.profiles.traced_calls import Call
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter


@pytest.fixture
def joblensd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArtifactWriter]:
    """joblensd with a trace of job 12.0."""
    monkeypatch.chdir(tmp_path)
    store = ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(8 << 20, 64 << 20, 3600))
    keep(store, content())
    site = Site()
    site.artifacts = store

    def begin(request: Request, stream: Stream) -> None:
        Dispatcher(site).stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(str(tmp_path / SOCKET), begin)
    yield store
    server.stop()


def keep(store: ArtifactWriter, made: bytes, job: str = "12.0", number: int = 7) -> None:
    header = about(job, number, kind="trace", content_type=traced_calls.CONTENT_TYPE, begun=BEGUN, ended=BEGUN + 10)
    store.add(header, [made])


def joblens(*arguments: str) -> int:
    return main(["trace", *arguments, "--run-dir", "."])


def test_sums_are_a_table(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("12.0") == 0
    head, columns, first, second, *rest = capsys.readouterr().out.splitlines()
    assert head.startswith("Traced from 2023-11-1")
    assert columns.split() == [
        "FUNCTION",
        "CALLS",
        "UNWOUND",
        "TOTAL",
        "MEDIAN",
        "99",
        "%",
        "LONGEST",
        "COUNTED",
        "FOR",
    ]
    assert first.split()[:3] == ["fit(int)", "4", "1"]  # of those that took as long, the one with more calls
    assert second.split()[:4] == ["main_loop", "3", "0", "7.0"] and second.split()[-2:] == ["9.00", "s"]
    assert "fit(int): its processes ran for up to 250.0 ms before it was traced" in rest
    assert rest[-1].endswith("has no function like fti; is it one of these: fit?")


def test_a_tree_has_callers_above_what_they_call(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("12.0", "--tree") == 0
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["3", "7.0", "ms", "main_loop"]
    assert second.split() == ["4", "1", "6.0", "ms", "fit(int)"]
    assert second.index("fit") == first.index("main_loop") + 2


def test_json_has_all_of_it(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("12.0", "--json") == 0
    (part,) = json.loads(capsys.readouterr().out)
    by_name = {each["Function"]: each for each in part["Functions"]}
    assert by_name["main_loop"]["MedianSeconds"] == pytest.approx(0.002, rel=0.06)
    assert by_name["main_loop"]["Percentile99Seconds"] == pytest.approx(0.004, rel=0.06)
    assert part["Tree"][1] == {"Parent": 0, "Function": "fit(int)", "Calls": 4, "Unwound": 1, "TotalSeconds": 0.006}
    assert part["LastCalls"][0]["End"] == "unwound" and part["LastCalls"][1]["Result"] == "17"


def test_a_job_without_one_is_told_how_to_have_one(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd.add(about("13.0", 9), [b"a report"])
    assert joblens("13.0") == 1
    assert "+JobLensTrace" in capsys.readouterr().err


def test_what_the_job_says_is_escaped_and_a_damaged_one_is_said_to_be(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2J\nfit"
    kept = traced_calls.decode(traced_calls.encode(told(function(evil, File=evil), function("b")), []))
    for lines in (trace_page.table(kept), trace_page.tree(kept)):
        assert all(line.isprintable() for line in lines)
    keep(joblensd, b"{}")
    assert joblens("12.0") == 1
    assert "this is no trace" in capsys.readouterr().err


def test_a_tree_with_spec_is_refused(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("12.0", "reco:fit", "--tree") == 2
    assert "leave out SPEC" in capsys.readouterr().err


def test_the_jobs_own_trace_alone_is_followed(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert joblens("12.0", "reco:fit", "--follow") == 2
    assert "leave out SPEC" in capsys.readouterr().err
    asked: list[dict[str, str]] = []
    monkeypatch.setattr("condor_joblens.cli.trace.messages", lambda path, verb, given: asked.append(given) or ())
    assert joblens("12.0", "--follow") == joblens("12.0", "--follow", "--for", "5m") == 0
    assert joblens("12.0", "reco:fit") == 0
    assert asked == [
        {"job": "12.0", "follow": "1", "seconds": "3600"},
        {"job": "12.0", "follow": "1", "seconds": "300"},
        {"job": "12.0", "spec": "reco:fit", "seconds": "10"},
    ]


def test_perfetto_gets_a_slice_for_each_call_that_ended(joblensd: ArtifactWriter) -> None:
    assert joblens("12.0", "--format", "perfetto", "-o", "job.pftrace") == 0
    packets = [dict(protobuf.fields(value)) for _, value in protobuf.fields(Path("job.pftrace").read_bytes())]  # type: ignore[arg-type]
    events = [(packet.get(8), dict(protobuf.fields(packet[11]))) for packet in packets if 11 in packet]  # type: ignore[arg-type]
    begun, took = round((BEGUN + 1.25) * 1e9), 500_000_000
    assert [(when, event[9]) for when, event in events] == [
        (begun, 1),
        (round((BEGUN + 1.5) * 1e9), 3),
        (begun + took, 2),
    ]
    assert len({event[11] for _, event in events}) == 1


def test_perfettos_own_schema_reads_it() -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace  # type: ignore[import-not-found]

    made = perfetto.Perfetto("12.0")
    packets = b"".join(made.packets(kept_trace.slices(traced_calls.decode(content()))))
    trace = Trace.FromString(packets)
    time, process, thread, begin, thrown, end = trace.packet
    assert {clock.clock_id: clock.timestamp for clock in time.clock_snapshot.clocks} == dict.fromkeys(
        (time.clock_snapshot.Clock.REALTIME, time.clock_snapshot.Clock.BOOTTIME), thrown.timestamp
    )
    assert process.track_descriptor.process.process_name == "job 12.0"
    assert (thread.track_descriptor.thread.pid, thread.track_descriptor.thread.tid) == (71, 72)
    assert thread.track_descriptor.parent_uuid == process.track_descriptor.uuid
    assert (thrown.track_event.name, thrown.track_event.Type.Name(thrown.track_event.type)) == (
        "fit(int)",
        "TYPE_INSTANT",
    )
    assert [(each.name, each.string_value) for each in thrown.track_event.debug_annotations] == [
        ("argument 1", "3"),
        ("argument 2", '"run7.root"'),
        ("end", "unwound"),
    ]
    assert begin.track_event.name == "main_loop" and end.timestamp - begin.timestamp == 500_000_000
    assert begin.track_event.track_uuid == thread.track_descriptor.uuid


def test_perfetto_shows_which_calls_go_on_and_exceptions_by_their_names() -> None:
    """As of a Python that was killed, and of one that is recorded in bursts: what was in an earlier one may be over."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    def call(when: int, tid: int, depth: int, end: str, took: float | None = None, result: str | None = None) -> Call:
        return Call(when, 5, tid, 0, None, end, took, result, depth)

    calls = [
        *(call(1, 7, 0, "entered"), call(2, 7, 1, "returned", 1.0), call(4, 7, 1, "entered")),
        call(5, 7, 1, "raised", None, "KeyError at line 12"),
        *(call(1, 8, 0, "entered"), call(3, 8, 0, "returned", 0.5), call(4, 8, 0, "unwound")),
    ]
    kept = traced_calls.decode(content())
    kept = dataclasses.replace(kept, calls=calls)
    trace = Trace.FromString(b"".join(perfetto.Perfetto("12.0").packets(kept_trace.slices(kept))))
    found = {7: [], 8: []}  # type: ignore[var-annotated]
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            kind = event.Type.Name(event.type).removeprefix("TYPE_").removeprefix("SLICE_")
            found[event.track_uuid & 255].append((packet.timestamp // 1_000_000_000, kind, *event.categories))
            if event.categories == ["exception"]:
                assert event.name == f"KeyError at line 12 in {kept.functions[0].name}"
    function = "function"
    assert found[7] == [
        *((1, "BEGIN", function), (2, "BEGIN", function), (3, "END"), (4, "BEGIN", function)),
        (5, "INSTANT", "exception"),
    ]
    assert found[8] == [
        *((1, "INSTANT", function), (3, "BEGIN", function), (3, "END"), (4, "INSTANT", function)),
    ]


def test_perfetto_sees_each_end_with_its_begin() -> None:
    """An end is that of what began last, and of one time what comes first in the file comes first."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    inner_first = [("b", 0, 50), ("c", 0, 50), ("a", 0, 100), ("d", 50, 90), ("e", 100, 1), ("z", 20, None)]
    slices = [perfetto.Slice(name, 1, 1, 1000 + begun, took) for name, begun, took in inner_first]
    trace = Trace.FromString(b"".join(perfetto.Perfetto("12.0").packets(slices)))
    events = [(packet.timestamp, packet.track_event) for packet in trace.packet if packet.HasField("track_event")]
    assert [when for when, _ in events] == sorted(when for when, _ in events)
    stack: list[tuple[str, int]] = []
    seen = {}
    for when, event in events:
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.append((event.name, when))
        elif event.type == event.TYPE_SLICE_END:
            name, begun = stack.pop()
            seen[name] = (begun - 1000, when - begun, len(stack))
    assert not stack and {name: (begun, took) for name, (begun, took, _) in seen.items()} == {
        "a": (0, 100), "b": (0, 50), "c": (0, 50), "d": (50, 50), "e": (100, 1)
    }  # fmt: skip
    assert {name: deep for name, (_, _, deep) in seen.items()} == {"a": 0, "b": 1, "c": 2, "d": 1, "e": 0}
