"""joblens-export: what the page says, and how the process behaves."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from running_exporter import Exporter, free_port, get

from condor_joblens import __version__
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.knob_values import address as parse_address
from condor_joblens.model import metrics
from condor_joblens.model.metrics import MetricKind, empty_rows
from condor_joblens.shm.writer import Writer
from condor_joblens.sinks import SinkContext, prometheus
from condor_joblens.sinks.prometheus import PrometheusSink, _Server, process_families
from condor_joblens.sinks.prometheus_page import Page


def jobs(*ids: str) -> np.ndarray:
    rows = empty_rows(len(ids))
    for number, (row, job_id) in enumerate(zip(rows, ids)):
        row["slot"], row["job_id"], row["owner"] = f"slot1_{number + 1}".encode(), job_id.encode(), b"alice"
        row["global_job_id"] = f"ap.example.org#{job_id}#1700000000".encode()
        row["run"], row["level"] = row["global_job_id"] + b"#1", b"basic"
    return rows


def page(rows: np.ndarray | Callable[[], Any]) -> str:
    return Page(rows if callable(rows) else lambda: (rows, time.time()), process_families).text().decode()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_metric_of_the_table_with_its_type() -> None:
    rows = jobs("12.0")
    for number, metric in enumerate(metrics.METRICS, 1):
        rows[metric.column] = number
    text = page(rows)
    found = samples(text)
    for number, metric in enumerate(metrics.METRICS, 1):
        name = metric.family + ("_total" if metric.kind is MetricKind.COUNTER else "")
        labels = {"slot": "slot1_1", "job_id": "12.0", "schedd": "ap.example.org", "owner": "alice"}
        labels.update([metric.label] if metric.label else [])
        assert found[name].count((labels, number * metric.family_scale)) == 1
        assert f"# TYPE {name} {'counter' if metric.kind is MetricKind.COUNTER else 'gauge'}\n" in text
    ((info, _),) = found["joblens_job_info"]
    assert (info["run"], info["level"]) == ("ap.example.org#12.0#1700000000#1", "basic")


def test_what_is_not_known_is_not_there() -> None:
    rows = jobs("12.0", "12.1")
    rows["cpu_seconds"] = [np.nan, 1.5]
    found = samples(page(rows))
    assert [value for _, value in found["joblens_job_cpu_seconds_total"]] == [1.5]
    assert "joblens_job_process_live" not in found


def test_a_counter_has_a_series_once_it_has_counted_and_a_gauge_always() -> None:
    rows = jobs("12.0", "12.1")
    for metric in metrics.METRICS:
        rows[metric.column] = 0
    rows["fs_nfs_opens"] = [0, 7]
    made = Page(lambda: (rows, time.time()))
    found = samples(made.text().decode())
    counters = {metric.exposed for metric in metrics.METRICS if metric.kind is MetricKind.COUNTER}
    assert {name for name in found if name in counters} == {"joblens_job_fs_opens_total"}
    assert [(labels["job_id"], value) for labels, value in found["joblens_job_fs_opens_total"]] == [("12.1", 7)]
    assert len(found["joblens_job_cpu_recent_cores"]) == 2, "0 cores are a number"
    rows["fs_nfs_opens"] = [1, 8]
    made = Page(lambda: (rows, time.time()))
    assert len(samples(made.text().decode())["joblens_job_fs_opens_total"]) == 2


def test_ended_jobs_vanish() -> None:
    rows = jobs("12.0", "12.1")
    rows["final"] = [True, False]
    rows["cpu_seconds"] = 1
    found = samples(page(rows))
    assert [labels["job_id"] for labels, _ in found["joblens_job_cpu_seconds_total"]] == ["12.1"]
    assert found["joblens_jobs"] == [({}, 1)]


def test_two_jobs_of_the_same_labels_do_not_spoil_the_page() -> None:
    rows = jobs("12.0", "12.0")
    rows["slot"], rows["cpu_seconds"] = b"slot1_1", [1, 2]
    assert len(samples(page(rows))["joblens_job_cpu_seconds_total"]) == 1


def test_the_first_page_without_jobs_has_the_families_of_any_other() -> None:
    text = page(jobs())
    assert "# TYPE joblens_job_info gauge\n" in text and "# TYPE joblens_job_cpu_seconds_total counter\n" in text


@pytest.mark.parametrize("value", ["", "host", ":1", "host:", "host:http", "host:\N{SUPERSCRIPT TWO}", "host:65536"])
def test_what_is_no_address_is_told_with_what_would_be_right(value: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT, e"):
        parse_address(value)


def test_labels_are_escaped_and_bounded() -> None:
    rows = jobs("12.0")
    rows["owner"] = b'a"} 1\njoblens_jobs 99\\'
    rows["run"] = b"\xff" * 176
    rows["cpu_seconds"] = 1
    found = samples(page(rows))
    assert found["joblens_jobs"] == [({}, 1)]
    assert "\n" not in found["joblens_job_cpu_seconds_total"][0][0]["owner"]
    assert len(found["joblens_job_info"][0][0]["run"]) <= 200


def test_without_joblensd_the_page_says_so() -> None:
    def none() -> None:
        raise JobLensError("no rows")

    found = samples(page(none))
    assert found["joblens_up"] == [({}, 0)]
    assert "joblens_jobs" not in found and "joblens_build_info" in found


def test_openmetrics_says_the_same() -> None:
    rows = jobs("12.0", "12.1")
    for metric in metrics.METRICS:
        rows[metric.column] = [3, 4]
    made = Page(lambda: (rows, 1.0), process_families)
    page = made.text(openmetrics=True).decode()
    assert page.endswith("# EOF\n")
    strict = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in openmetrics_families(page)
        for sample in family.samples
        if sample.name.startswith("joblens_job_")
    }
    plain = {
        (name, *sorted(labels.items())): value
        for name, found in samples(made.text().decode()).items()
        for labels, value in found
        if name.startswith("joblens_job_")
    }
    assert strict == plain and len(plain) > 2 * len(metrics.METRICS)


def test_a_page_is_made_once_for_rows_and_anew_for_new_ones() -> None:
    rows, taken = jobs("12.0", "12.1", "12.2"), [1.0]
    rows["cpu_seconds"] = [1, 2, 3]
    made = Page(lambda: (rows, taken[0]))
    first = made.text()
    assert made.text() is first
    packed = made.text(compressed=True)
    assert gzip.decompress(packed) == first and made.text(compressed=True) is packed
    for number, seconds in enumerate(([4, 5, 6], [np.nan, 5, 7], [8, np.inf, np.nan])):
        rows["cpu_seconds"] = seconds
        rows["job_id"][1] = f"13.{number}".encode()
        taken[0] += 1
        found = samples(made.text().decode())["joblens_job_cpu_seconds_total"]
        known = [(f"12.{row}" if row != 1 else f"13.{number}", value) for row, value in enumerate(seconds)]
        assert [(labels["job_id"], value) for labels, value in found] == [
            (job, value) for job, value in known if np.isfinite(value)
        ]


def test_promtool_has_no_complaint() -> None:
    rows = jobs("12.0", "12.1")
    for metric in metrics.METRICS:
        rows[metric.column] = 1
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(rows), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# The process


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    exporter = Exporter(tmp_path)
    yield exporter
    exporter.kill()


def test_serves_the_rows_follows_the_configuration_and_stops(exporter: Exporter) -> None:
    first, second = free_port(), free_port()
    rows = jobs("12.0")
    rows["cpu_seconds"] = 1.5
    Writer(f"{exporter.folder}/rows", 8, os.getgid()).publish(rows, time.time())
    exporter.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{first}")
    exporter.start()
    exporter.until_logged("page is at")
    assert samples(get(first))["joblens_job_cpu_seconds_total"][0][1] == 1.5
    assert exporter.process
    exporter.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{second}", JOBLENS_PERIOD="banana")
    exporter.process.send_signal(signal.SIGHUP)
    log = exporter.until_logged(f"page is at http://127.0.0.1:{second}")
    assert log.count("JOBLENS_PERIOD = banana is not a number") == 1
    assert samples(get(second))["joblens_up"] == [({}, 1)]
    # a client that says nothing must not keep it from stopping
    with socket.create_connection(("127.0.0.1", second)):
        assert exporter.stop() == 0


@pytest.mark.slow
def test_clients_that_are_slow_on_purpose_make_room(exporter: Exporter) -> None:
    Writer(f"{exporter.folder}/rows", 8, os.getgid()).publish(jobs("12.0"), time.time())
    port = free_port()
    exporter.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{port}")
    exporter.start()
    exporter.until_logged("page is at")
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as slow:
                slow.send(b"GET /metrics HTTP/1.1\r\nName: ")
                while not over.wait(0.2):
                    slow.send(b"x")

    crowd = [threading.Thread(target=drip) for _ in range(8)]
    for client in crowd:
        client.start()
    served = 0
    deadline = time.monotonic() + 60
    while served < 3 and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            served += 'owner="alice"' in get(port)
        time.sleep(1.1)
    over.set()
    for client in crowd:
        client.join()
    assert served == 3


def test_where_a_page_takes_long_scrapers_wait_behind_slow_clients_and_none_is_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a node whose cores are all busy."""
    monkeypatch.setattr(prometheus, "_ENOUGH_SECONDS", 3.0)  # this one may be so busy that a page takes a second

    def slow_page(environ: Any, begin: Any) -> list[bytes]:
        time.sleep(0.3)
        begin("200 OK", [("Content-Length", "4")])
        return [b"page"]

    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server, address = _Server(listener, slow_page, None), listener.getsockname()  # type: ignore[arg-type]
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    try:
        slow = [socket.create_connection(address) for _ in range(6)]
        with ThreadPoolExecutor(10) as scrapers:
            found = list(scrapers.map(lambda _: fetched(address), range(10)))
        for connection in slow:
            connection.close()
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    assert found == [b"page"] * 10


def fetched(address: tuple[str, int]) -> bytes:
    """The page's text, or the name of what went wrong."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__.encode()
    finally:
        connection.close()


def test_a_taken_address_is_said_once_and_waited_for(exporter: Exporter) -> None:
    port = free_port()
    exporter.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{port}")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        exporter.start()
        log = exporter.until_logged("can't be listened at")
        assert f"JOBLENS_SINK_PROMETHEUS_ADDRESS = 127.0.0.1:{port}" in log and "Address already in use" in log
    assert exporter.process
    exporter.process.send_signal(signal.SIGHUP)  # the same configuration: nothing starts anew
    exporter.until_logged("reconfiguring")
    assert exporter.stop() == 0
    assert exporter.log.read_text().count("can't be listened at") == 1


@pytest.mark.parametrize("address", ["a..b:1", "no.such.host.invalid:1", "192.0.2.1:1"])
def test_an_address_that_can_be_none_costs_a_line(address: str) -> None:
    said: list[str] = []
    context = SinkContext(said.append, lambda: (jobs(), 0.0), lambda: (), "node")
    nothing = {"certificate": "", "key": "", "client_authority": "", "labels": ()}
    sink = PrometheusSink({"address": address, **nothing}, context)
    sink.start()
    while not said:
        time.sleep(0.02)
    sink.close(5)
    assert len(said) == 1 and f"JOBLENS_SINK_PROMETHEUS_ADDRESS = {address} can't be listened at" in said[0]


def page_sink(address: str) -> PrometheusSink:
    context = SinkContext(lambda line: None, lambda: (jobs(), 1.0), lambda: (), "node")
    nothing = {"certificate": "", "key": "", "client_authority": "", "labels": ()}
    return PrometheusSink({"address": address, **nothing}, context)


def test_whoever_made_the_page_is_compared_with_what_is_installed() -> None:
    sink = page_sink(f"127.0.0.1:{free_port()}")
    (unheard,) = sink.check()
    assert not unheard.ok and "does not answer" in unheard.text
    sink.start()
    try:
        while not (found := list(sink.check()))[0].ok:
            time.sleep(0.02)
        assert [each.ok for each in found] == [True], "what is installed made it"
    finally:
        sink.close(5)
    for version, words in ((b"0.0.9", "the page is made by 0.0.9"), (b"", "the page does not say who makes it")):
        with answering(PAGE_OF_OLD.replace(b"0.0.9", version)) as address:
            _, differs = page_sink(address).check()
        assert (differs.text, differs.ok) == (f"{words}, and {__version__} is installed", False)


PAGE_OF_OLD = (
    b"HTTP/1.0 200 OK\r\n\r\n" + b'# HELP x y\njoblens_job_info{job="v"} 1.0\n' * 3000
    + b'joblens_build_info{python="3.9",schema="3",version="0.0.9"} 1.0\n'
)  # fmt: skip


@pytest.mark.parametrize("page", [b"", b"\xff" * 5000, b"HTTP/1.0 200 OK\r\n\r\n" + b"a" * 200_000, b"SSH-2.0-x\r\n"])
def test_whatever_stands_at_the_page_s_address_ends_the_question(page: bytes) -> None:
    with answering(page) as address:
        assert prometheus.page_version(address, by_tls=False) == ""


@contextlib.contextmanager
def answering(page: bytes) -> Iterator[str]:
    """HOST:PORT of a server that sends `page` to whoever asks, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(1)
                        connection.recv(4096)
                        connection.sendall(page)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_a_site_can_have_more_labels_and_the_rest_is_in_the_info() -> None:
    rows = jobs("1.0", "2.0")
    rows["accounting_group"], rows["vo"], rows["executable"] = b"group_cms.prod", b"cms", [b"reco\x1b", b'a"b']
    rows["cpu_seconds"] = 5.0
    text = Page(lambda: (rows, 1.0), tuple, ("accounting_group", "executable")).text().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (first, second) = families["joblens_job_cpu_seconds"].samples
    assert first.labels == {
        "slot": "slot1_1", "job_id": "1.0", "schedd": "ap.example.org", "owner": "alice",
        "accounting_group": "group_cms.prod", "executable": "reco\\x1b",
    }  # fmt: skip
    assert second.labels["executable"] == 'a"b'
    info = families["joblens_job_info"].samples[0].labels
    assert (info["vo"], info["accounting_group"]) == ("cms", "group_cms.prod")
    plain = Page(lambda: (rows, 1.0)).text().decode()
    families = {family.name: family for family in text_string_to_metric_families(plain)}
    assert "executable" not in families["joblens_job_cpu_seconds"].samples[0].labels
    assert families["joblens_job_info"].samples[0].labels["executable"] == "reco\\x1b"


@pytest.mark.parametrize(
    ("value", "labels"),
    [("", ()), ("executable accounting_group", ("accounting_group", "executable")), ("VO,vo", ("vo",)), ("slot", None)],
)
def test_which_labels_there_can_be(value: str, labels: tuple[str, ...] | None) -> None:
    (knob,) = (knob for knob in PrometheusSink.knobs if knob.name == "LABELS")
    if labels is None:
        with pytest.raises(ValueError, match="some of accounting_group, vo, executable"):
            knob.parse(value)
    else:
        assert knob.parse(value) == labels


@pytest.mark.skipif(os.getuid() != 0, reason="only root has privileges to give up")
def test_gives_up_every_privilege() -> None:
    script = """
import os
from condor_joblens.common import daemon, privilege
daemon.Daemon("it", "IT", "ItLog", "NONE")
privilege.become(65534, 65534)
assert "CONDOR_PRIVATE_INHERIT" not in os.environ
print(open("/proc/self/status").read())
"""
    environment = {**os.environ, "CONDOR_PRIVATE_INHERIT": "secret"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    status = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
    assert status["Groups"].split() == [] and status["NoNewPrivs"].strip() == "1"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
