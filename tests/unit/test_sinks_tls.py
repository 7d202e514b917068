"""TLS files of sinks: each that is wrong is named by its knob."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import tls

MACRO = "JOBLENS_SINK_KAFKA_"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates with keys; one key has a pass phrase."""
    made = tmp_path_factory.mktemp("tls")
    for name, protection in (("ours", ["-nodes"]), ("theirs", ["-nodes"]), ("locked", ["-passout", "pass:secret"])):
        key = ["-keyout", str(made / f"{name}.key"), "-out", str(made / f"{name}.pem"), "-subj", f"/CN={name}"]
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *protection]
        subprocess.run([*new, *key], check=True, capture_output=True)
    (made / "both.pem").write_bytes((made / "ours.key").read_bytes() + (made / "ours.pem").read_bytes())
    (made / "words.pem").write_text("no certificate\n")
    return made


def settings(folder: Path, **names: str) -> dict[str, str]:
    given = {"authority": "", "certificate": "", "key": ""}
    return {**given, **{knob: str(folder / name) for knob, name in names.items()}}


@pytest.mark.parametrize(
    "names, cause",
    [
        ({"authority": "none.pem"}, "AUTHORITY = {}/none.pem can't be read (No such file or directory): "),
        ({"authority": "words.pem"}, "AUTHORITY = {}/words.pem has no certificate in PEM: "),
        ({"authority": ""}, "AUTHORITY = {} can't be read (Is a directory): "),
        ({"certificate": "none.pem"}, "CERTIFICATE = {}/none.pem can't be read (No such file or directory): "),
        ({"certificate": "words.pem", "key": "ours.key"}, "CERTIFICATE = {}/words.pem has no certificate in PEM: "),
        ({"certificate": "ours.pem"}, "CERTIFICATE = {}/ours.pem has no private key in PEM"),
        ({"certificate": "ours.pem", "key": "none.key"}, "KEY = {}/none.key can't be read (No such file"),
        ({"certificate": "ours.pem", "key": "words.pem"}, "KEY = {}/words.pem has no private key in PEM"),
        ({"certificate": "ours.pem", "key": "theirs.key"}, "KEY = {0}/theirs.key is not the key of {0}/ours.pem: "),
        ({"certificate": "locked.pem", "key": "locked.key"}, "KEY = {}/locked.key has a pass phrase"),
        ({"key": "ours.key"}, "KEY is set without a certificate: set JOBLENS_SINK_KAFKA_CERTIFICATE too"),
    ],
)
def test_a_file_that_is_wrong_is_named_by_its_knob(folder: Path, names: dict[str, str], cause: str) -> None:
    with pytest.raises(JobLensError) as raised:
        tls.client("kafka", settings(folder, **names))
    assert str(raised.value).startswith(MACRO + cause.format(folder)) and "\n" not in str(raised.value)


def test_a_key_that_may_not_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tls, "open", forbidden, raising=False)
    with pytest.raises(JobLensError, match="may not be read: chgrp joblens and chmod 640 it"):
        tls.client("kafka", settings(folder, authority="ours.pem"))


def test_what_is_right_is_taken(folder: Path) -> None:
    for names in (
        {},
        {"authority": "theirs.pem"},
        {"certificate": "ours.pem", "key": "ours.key"},
        {"certificate": "both.pem"},
    ):
        assert tls.client("kafka", settings(folder, **names)) is not None
    assert tls.client("kafka", settings(folder, authority="ours.pem"), "SECURITY = plaintext") is None


def test_a_certificate_for_a_plain_connection_is_a_mistake(folder: Path) -> None:
    with pytest.raises(JobLensError, match="CERTIFICATE is set, but SECURITY = plaintext means no TLS"):
        tls.client("kafka", settings(folder, certificate="both.pem"), "SECURITY = plaintext")


def test_who_listens_needs_a_certificate_for_the_rest(folder: Path) -> None:
    given = {"certificate": "", "key": "", "client_authority": ""}
    assert tls.server("prometheus", given) is None
    for name in ("key", "client_authority"):
        with pytest.raises(JobLensError, match=f"PROMETHEUS_{name.upper()} is set without a certificate"):
            tls.server("prometheus", {**given, name: os.fspath(folder / "ours.pem")})
