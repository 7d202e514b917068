"""The supervisor of joblens-export: it keeps the page's port, and the exporter, whatever becomes of that."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_exporter import REPOSITORY, Exporter, free_port, get

from condor_joblens.common.page_address import page_address
from condor_joblens.export.page_port import PagePort


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Exporter]:
    found = Exporter(tmp_path, "condor_joblens.export.supervisor")
    yield found
    found.kill()


def child(of: Exporter) -> int:
    """The process id of the exporter that runs; 0 if none does."""
    assert of.process
    found = Path(f"/proc/{of.process.pid}/task/{of.process.pid}/children").read_text().split()
    return int(found[0]) if found else 0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(supervised: Exporter, address: str) -> int:
    """Starts it with the page there, and waits until it serves. The exporter's process id."""
    supervised.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=address)
    supervised.start()
    supervised.until_logged(f"page is at http://{address}")
    return child(supervised)


def a_stranger_can_listen(port: int) -> bool:
    """By every trick that a socket has."""
    for host in ("127.0.0.1", "0.0.0.0"):
        for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            with socket.socket() as stranger, contextlib.suppress(OSError):
                if option:
                    stranger.setsockopt(socket.SOL_SOCKET, option, 1)
                stranger.bind((host, port))
                stranger.listen()
                return True
    return False


def test_a_killed_exporter_leaves_the_port_to_nobody_and_scrapes_wait_for_the_next_one(supervised: Exporter) -> None:
    port = free_port()
    first = started(supervised, f"127.0.0.1:{port}")
    over = threading.Event()
    stolen: list[bool] = []

    def steal() -> None:
        while not over.is_set():
            stolen.append(a_stranger_can_listen(port))

    thief = threading.Thread(target=steal)
    thief.start()
    try:
        os.kill(first, signal.SIGKILL)
        until(lambda: child(supervised) != first)
        pages = [get(port) for _ in range(3)]  # they queue, and none is refused
        until(lambda: len(stolen) > 10)
    finally:
        over.set()
        thief.join()
    assert all("joblens_up" in page for page in pages)
    assert not any(stolen)
    assert child(supervised) not in (0, first)
    log = supervised.until_logged("was ended by signal 9")
    assert f"the exporter, process {first}, was ended by signal 9: it is started again in 1 s" in log
    assert supervised.stop() == 0
    assert a_stranger_can_listen(port), "nobody keeps it any longer"


def test_a_port_that_the_exporter_has_given_up_is_taken_again() -> None:
    """They share the socket: an exporter that somebody else has in his hands can shut it down."""
    said: list[str] = []
    page, port = PagePort(said.append, None), free_port()
    page.want(f"127.0.0.1:{port}")
    assert page.listener is not None
    page.look()
    assert not said and not page.try_again()
    page.listener.dup().shutdown(socket.SHUT_RDWR)
    assert a_stranger_can_listen(port)
    page.look()
    assert said == [f"the exporter has shut down the socket at 127.0.0.1:{port}: another one is made"]
    assert page.seconds() == 0 and page.try_again()
    assert not a_stranger_can_listen(port)
    page.listener.close()


def test_a_new_address_is_bound_and_the_exporter_goes_on(supervised: Exporter) -> None:
    first, second = free_port(), free_port()
    pid = started(supervised, f"127.0.0.1:{first}")
    for address in (f"127.0.0.1:{second}", f"0.0.0.0:{second}", f"localhost:{second}"):
        supervised.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=address)
        assert supervised.process
        supervised.process.send_signal(signal.SIGHUP)
        supervised.until_logged(f"page is at http://{address}")
        assert "joblens_up" in get(second)
        assert child(supervised) == pid
    assert a_stranger_can_listen(first)
    assert "can't be listened at" not in supervised.log.read_text()


def test_without_the_page_it_keeps_no_port(supervised: Exporter) -> None:
    port = free_port()
    started(supervised, f"127.0.0.1:{port}")
    supervised.configure(JOBLENS_SINKS="file", JOBLENS_SINK_FILE_PATH=f"{supervised.folder}/records")
    assert supervised.process
    supervised.process.send_signal(signal.SIGHUP)
    until(lambda: a_stranger_can_listen(port))
    assert supervised.stop() == 0


def test_a_taken_address_costs_one_line_and_no_other_sink(supervised: Exporter) -> None:
    port = free_port()
    supervised.configure(
        JOBLENS_SINKS="prometheus, file",
        JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{port}",
        JOBLENS_SINK_FILE_PATH=f"{supervised.folder}/records",
        JOBLENS_SPOOL_DIR=f"{supervised.folder}/spool",
    )
    with socket.create_server(("127.0.0.1", port)):
        supervised.start()
        log = supervised.until_logged("can't be listened at")
        wrong = f"JOBLENS_SINK_PROMETHEUS_ADDRESS = 127.0.0.1:{port} can't be listened at: Address already in use; "
        assert wrong + "choose another, or end what uses it (tried again every 10 s)" in log
        supervised.until_logged("joblens-export runs as user id")
        until(lambda: (supervised.folder / "spool" / "file").exists())
    supervised.until_logged("page is at")
    assert "joblens_up" in get(port)
    assert supervised.log.read_text().count("can't be listened at") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_both_end_together_when_it_is_told_so(supervised: Exporter, number: int) -> None:
    pid = started(supervised, f"127.0.0.1:{free_port()}")
    assert supervised.process
    supervised.process.send_signal(number)
    assert supervised.process.wait(60) == 0
    assert not Path(f"/proc/{pid}").exists()
    assert "joblens-export stops" in supervised.log.read_text()


def test_no_exporter_outlives_it(supervised: Exporter) -> None:
    pid = started(supervised, f"127.0.0.1:{free_port()}")
    supervised.kill()
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_text())


def test_an_exporter_that_keeps_ending_is_started_ever_more_rarely(supervised: Exporter) -> None:
    """Until somebody reconfigures, which may be what it needs."""
    (supervised.folder / "sitecustomize.py").write_text(
        "if 'supervisor' not in open('/proc/self/cmdline').read():\n    raise SystemExit(3)\n"
        "from condor_joblens.common import privilege\nprivilege.service_ids = lambda: None\n"
        "from condor_joblens.export import exporter_process\nexporter_process.FIRST_PAUSE = 0.1\n"
    )
    supervised.configure(JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{free_port()}")
    supervised.start()
    supervised.until_logged("is started again in 1.6 s")
    pauses = re.findall(r"ended with exit code \d+: it is started again in ([0-9.]+) s", supervised.log.read_text())
    assert pauses[:5] == ["0.1", "0.2", "0.4", "0.8", "1.6"]
    (supervised.folder / "sitecustomize.py").unlink()
    if os.getuid() != 0:
        supervised.until_logged("page is at")


REOPENS = """
import os, sys
from condor_joblens.common.daemon import Daemon
from condor_joblens.export import supervisor
folder, ids = sys.argv[1], (65533, 65533)
daemon = Daemon("it", "IT", "Log", "NONE")
daemon.macros = {"LOG": folder}
supervisor._open_log(daemon, ids)
os.chown(folder, 65534, 65534)
supervisor._give_up_privileges("127.0.0.1:9753")
supervisor._open_log(daemon, ids)
daemon.log("after")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to give up")
def test_without_most_capabilities_it_opens_the_exporters_log_again() -> None:
    with tempfile.TemporaryDirectory(prefix="joblens-log", dir="/tmp") as folder:  # pytest's own only root may enter
        os.chmod(folder, 0o755)
        command = [sys.executable, "-c", REOPENS, folder]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, timeout=60)
        log = Path(folder, "Log")
        assert "after" in log.read_text() and "can't be opened" not in log.read_text()
        assert log.stat().st_uid == 65533


def test_the_root_process_loads_nothing_that_reads_the_network() -> None:
    script = "import sys\nfrom condor_joblens.export import supervisor\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "ssl", "http.client", "http.server", "socketserver", "prometheus_client", "asyncio"}
    assert not any(name.startswith(("condor_joblens.sinks", "condor_joblens.shm")) for name in loaded)


@pytest.mark.parametrize(
    "macros, expected",
    [
        ({}, "127.0.0.1:9753"),
        ({"JOBLENS_SINKS": "kafka, file"}, ""),
        ({"JOBLENS_SINK_PROMETHEUS_ADDRESS": "[::]:9000"}, "[::]:9000"),
        ({"joblens_sinks": "file Prometheus", "joblens_sink_prometheus_address": "host:1"}, "host:1"),
        ({"JOBLENS_SINK_PROMETHEUS_ADDRESS": "nonsense"}, "127.0.0.1:9753"),
    ],
)
def test_the_page_s_address_is_what_the_sink_takes(macros: dict[str, str], expected: str) -> None:
    assert page_address(macros) == expected


def test_a_name_is_resolved_by_another_process() -> None:
    said: list[str] = []
    port = PagePort(said.append, None)
    port.want("no-such-host.invalid:9753")
    assert port.listener is None and "the name no-such-host.invalid has no address" in said[0]
    assert 0 < (port.seconds() or 0) <= 10
    port.want("localhost:0")
    assert port.listener is not None and port.seconds() is None and len(said) == 1
    port.listener.close()
