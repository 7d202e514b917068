"""Mail of the hub by TLS with a password, to a real mail server: nothing goes to one that can't show who it is."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mail_server import MailServer

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.rules.firings import Firing
from condor_joblens.hub.rules.mail import message, send
from condor_joblens.hub.rules.settings import Mail

# of TLS from the first byte, aiosmtpd does not know
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

LOGIN = ("joblens", "sword fish;%\\")
FIRING = Firing(1, "r", "wave", "c", True, 1.0, 2.0, 3, "12 jobs failed", "SIGSEGV in /x.", "", "", "", {})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost, with its key: its own authority."""
    file = tmp_path_factory.mktemp("mail") / "localhost.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*new, *name, "-keyout", str(file), "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


@pytest.fixture
def serve(certificate: Path) -> Iterator[Callable[[str], MailServer]]:
    """A server that speaks so: tls, starttls or none; it asks for LOGIN unless it is none."""
    started: list[MailServer] = []

    def start(encryption: str) -> MailServer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        is_plain = encryption == "none"
        server = MailServer(
            None if is_plain else context, encryption == "starttls", None if is_plain else LOGIN
        )  # fmt: skip
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[[MailServer, str], Mail]:
    """How mail leaves for this server, with LOGIN."""
    file = tmp_path / "password"
    file.write_text(f"{LOGIN[1]}\n", encoding="utf-8")

    def made(server: MailServer, encryption: str) -> Mail:
        return Mail("localhost", server.port, "joblens@example.org", encryption, (), LOGIN[0], str(file))

    return made


def post(mail: Mail) -> None:
    send(mail, message(mail, "ops@example.org", [FIRING], "", 1.7e9))


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
def test_mail_goes_by_tls_with_a_password(
    serve: Callable[[str], MailServer],
    settings_of: Callable[[MailServer, str], Mail],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    encryption: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = serve(encryption)
    post(settings_of(server, encryption))
    ((to, text),) = server.mails
    assert to == ["ops@example.org"] and "SIGSEGV in /x." in text and server.shown == [LOGIN]


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
def test_who_can_t_show_who_he_is_gets_neither_password_nor_mail(
    serve: Callable[[str], MailServer],
    settings_of: Callable[[MailServer, str], Mail],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    encryption: str,
) -> None:
    server = serve(encryption)
    mail = settings_of(server, encryption)
    with pytest.raises(JobLensError, match="CERTIFICATE_VERIFY_FAILED"):
        post(mail)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(JobLensError, match="CERTIFICATE_VERIFY_FAILED"):
        post(replace(mail, host="127.0.0.1"))  # that is not its name
    assert server.shown == [] and server.mails == []


@pytest.mark.parametrize("speaks, wanted", [("none", "starttls"), ("none", "tls"), ("starttls", "tls")])
def test_a_server_that_does_not_speak_tls_gets_neither_password_nor_mail(
    serve: Callable[[str], MailServer],
    settings_of: Callable[[MailServer, str], Mail],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    speaks: str,
    wanted: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = serve(speaks)
    with pytest.raises(JobLensError, match="does not take mail"):
        post(settings_of(server, wanted))
    assert server.shown == [] and server.mails == []


def test_a_wrong_password_is_said_and_a_missing_one_too(
    serve: Callable[[str], MailServer],
    settings_of: Callable[[MailServer, str], Mail],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = serve("starttls")
    mail = settings_of(server, "starttls")
    Path(mail.password_file).write_text("herring")
    with pytest.raises(JobLensError, match=r"does not take mail: .*535") as refused:
        post(mail)
    assert "herring" not in str(refused.value) and ("joblens", "herring") in server.shown
    Path(mail.password_file).write_text("sch\u00e4rfer", encoding="utf-8")
    with pytest.raises(JobLensError, match="not ASCII") as refused:
        post(mail)
    assert "xe4" not in str(refused.value) and "\u00e4" not in str(refused.value), "a letter of it is nobody's"
    Path(mail.password_file).unlink()
    with pytest.raises(JobLensError, match=r"the password of mail can't be read: .*password"):
        post(mail)
    assert server.mails == [] and LOGIN not in server.shown
