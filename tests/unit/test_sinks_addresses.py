"""An address of a sink that is wrong: `joblens doctor` names its knob, its value, the cause and the remedy."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from answering_servers import answering_servers

from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import Diagnosis, SinkContext, server_diagnosis
from condor_joblens.sinks.registry import configure

WEB = b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"

URLS = {"kafka": ("SERVERS", "{}"), "otlp": ("URL", "http://{}"), "opensearch": ("URL", "http://{}")}


def found_wrong(sink: str, address: str, **more: str) -> Diagnosis:
    """What the check of the sink says of this address."""
    knob, form = URLS[sink]
    settings = {knob: form.format(address), **more}
    (config,), problems = configure(
        [sink], {f"JOBLENS_SINK_{sink.upper()}_{name}": set for name, set in settings.items()}
    )
    assert not problems
    context = SinkContext(lambda line: None, lambda: (empty_rows(0), 0.0), tuple, "node")
    diagnosis = next(one for one in config.sink(config.settings, context).check() if not one.ok)
    assert diagnosis.text.startswith(f"JOBLENS_SINK_{sink.upper()}_{knob}: {settings[knob]}"), diagnosis
    assert diagnosis.remedy
    return diagnosis


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], str]]:
    """Starts a server that answers so to what comes first; its address."""
    with answering_servers() as start:
        yield lambda said: start(lambda: iter([said]))


@pytest.fixture
def unused() -> Iterator[str]:
    """An address at which nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("sink", URLS)
def test_a_name_that_does_not_resolve(sink: str) -> None:
    found = found_wrong(sink, "no-such-host.invalid:4318")
    assert "does not resolve" in found.text and found.remedy == "correct the name, or the DNS"


@pytest.mark.parametrize("sink", URLS)
def test_a_port_at_which_nobody_listens(sink: str, unused: str) -> None:
    found = found_wrong(sink, unused)
    assert "can't be reached (Connection refused): nothing listens there" in found.text
    assert found.remedy == "is the server running, and is the port right?"


@pytest.mark.parametrize("sink", URLS)
def test_a_server_that_says_nothing(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_diagnosis, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = found_wrong(sink, f"127.0.0.1:{silent.getsockname()[1]}")
    assert "takes the connection and then says nothing" in found.text and found.remedy == "does it hang?"


@pytest.mark.parametrize("sink", ["otlp", "opensearch"])
def test_a_port_where_http_is_not_spoken(sink: str, serve: Callable[[bytes], str]) -> None:
    assert "does not answer in HTTP" in found_wrong(sink, serve(b"220 mail.example.org\r\n")).text


@pytest.mark.parametrize("sink", ["otlp", "opensearch"])
def test_a_port_where_tls_is_wanted(sink: str, serve: Callable[[bytes], str]) -> None:
    found = found_wrong(sink, serve(TLS_ALERT))
    assert "wants TLS" in found.text and found.remedy == "write https:// instead of http://"


ANSWERS = {
    "401 Unauthorized": ("refuses us (401)", "correct what stands in JOBLENS_SINK_OTLP_HEADERS_FILE"),
    "404 Not Found": ("has no /v1/", "name the address of OTLP/HTTP, without a path"),
    "500 Not Well: no disk": ("answers 500", "look at its log"),
    "200 OK": ("does not answer as a collector does", "is it one?"),
}


@pytest.mark.parametrize("status", ANSWERS)
def test_a_web_server_that_does_not_take_records(status: str, serve: Callable[[bytes], str]) -> None:
    said = f"HTTP/1.0 {status}\r\n\r\n<html>went wrong: sorry</html>".encode()
    cause, remedy = ANSWERS[status]
    found = found_wrong("otlp", serve(said))
    assert cause in found.text and found.remedy.startswith(remedy)


def test_a_web_server_is_no_broker(serve: Callable[[bytes], str]) -> None:
    found = found_wrong("kafka", serve(WEB))
    assert "answers in HTTP" in found.text and found.remedy == "name the port of a Kafka broker"


def test_what_speaks_something_else_is_no_broker(serve: Callable[[bytes], str]) -> None:
    assert "does not speak Kafka's protocol" in found_wrong("kafka", serve(b"220 mail.example.org\r\n")).text


def test_a_broker_that_wants_tls(serve: Callable[[bytes], str]) -> None:
    found = found_wrong("kafka", serve(TLS_ALERT))
    assert "it wants TLS" in found.text and "JOBLENS_SINK_KAFKA_SECURITY = ssl" in found.remedy


def test_a_server_that_does_not_speak_tls(serve: Callable[[bytes], str]) -> None:
    found = found_wrong("kafka", serve(WEB), SECURITY="ssl")
    assert "does not speak TLS at this port" in found.text and "TLS port" in found.remedy


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*new, "-keyout", key, "-out", certificate, "-subj", "/CN=wrong"], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def shake_hands() -> None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            connection, _ = server.accept()
            with pytest.raises(OSError), context.wrap_socket(connection, server_side=True):
                pass

        thread = threading.Thread(target=shake_hands)
        thread.start()
        found = found_wrong("kafka", f"127.0.0.1:{port}", SECURITY="ssl")
        thread.join()
    assert "a certificate that is not trusted" in found.text and "JOBLENS_SINK_KAFKA_AUTHORITY" in found.remedy


def test_each_of_several_brokers_is_named(serve: Callable[[bytes], str], unused: str) -> None:
    macros = {"JOBLENS_SINK_KAFKA_SERVERS": f"{unused}, {serve(WEB)}"}
    (config,), _ = configure(["kafka"], macros)
    context = SinkContext(lambda line: None, lambda: (empty_rows(0), 0.0), tuple, "node")
    first, second = config.sink(config.settings, context).check()
    assert first.text.startswith(f"JOBLENS_SINK_KAFKA_SERVERS: {unused} can't be reached")
    assert "answers in HTTP" in second.text
