"""TLS by the knobs of a sink; a file that is wrong is named by its knob, the cause and the remedy.

The files are read whenever a context is made: a certificate that was renewed in place is shown by the next connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import SinkKnob, macro_of, parsers


def client_knobs(servers: str) -> tuple[SinkKnob, ...]:
    """Whom a sink trusts, and who it is to them; servers: what they are called, in the plural."""
    return (
        SinkKnob("AUTHORITY", "", parsers.file, "PEM file", f"who signs {servers}' certificates; empty: the system's"),
        SinkKnob("CERTIFICATE", "", parsers.file, "PEM file", f"our own certificate, where {servers} want one"),
        SinkKnob("KEY", "", parsers.file, "PEM file", "the key of that certificate; empty: it is in the same file"),
    )


def client(sink: str, settings: Mapping[str, Any], plain: str = "") -> ssl.SSLContext | None:
    """What `client_knobs` say of the sink called so. Raises JobLensError.

    plain: which setting makes the connection one without TLS, e.g. `SECURITY = plaintext`; None is returned then.
    """
    macro = macro_of(sink)
    certificate, key = settings["certificate"], settings["key"]
    if plain and (certificate or key):
        name = "CERTIFICATE" if certificate else "KEY"
        raise JobLensError(f"{macro}{name} is set, but {plain} means no TLS: change one of the two")
    if key and not certificate:
        raise JobLensError(f"{macro}KEY is set without a certificate: set {macro}CERTIFICATE too")
    if plain:
        return None
    made = _context(ssl.PROTOCOL_TLS_CLIENT)
    if settings["authority"]:
        _trust(made, f"{macro}AUTHORITY", settings["authority"])
    else:
        made.load_default_certs()
    if certificate:
        _show(made, macro, certificate, key)
    return made


def server(sink: str, settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """What CERTIFICATE, KEY and CLIENT_AUTHORITY say of a sink that listens; None: no TLS. Raises JobLensError."""
    macro = macro_of(sink)
    if not settings["certificate"]:
        for name in ("KEY", "CLIENT_AUTHORITY"):
            if settings[name.lower()]:
                raise JobLensError(f"{macro}{name} is set without a certificate: set {macro}CERTIFICATE too")
        return None
    made = _context(ssl.PROTOCOL_TLS_SERVER)
    made.verify_mode = ssl.CERT_NONE
    if settings["client_authority"]:
        made.verify_mode = ssl.CERT_REQUIRED
        _trust(made, f"{macro}CLIENT_AUTHORITY", settings["client_authority"])
    _show(made, macro, settings["certificate"], settings["key"])
    return made


def _context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made


def _trust(context: ssl.SSLContext, macro: str, path: str) -> None:
    _readable(macro, path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError):
        raise _wrong(macro, path, "has no certificate in PEM: name the file of an authority") from None


def _show(context: ssl.SSLContext, macro: str, certificate: str, key: str) -> None:
    _readable(f"{macro}CERTIFICATE", certificate)
    where, holder = (f"{macro}KEY", key) if key else (f"{macro}CERTIFICATE", certificate)
    _readable(where, holder)
    try:
        # OpenSSL does not say which of the two files is wrong: so the first is tried by itself
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except (ssl.SSLError, OSError):
        raise _wrong(f"{macro}CERTIFICATE", certificate, "has no certificate in PEM: name the file of ours") from None
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except _PassPhrase:
        raise _wrong(where, holder, "has a pass phrase, and nobody is there to type it: take it off") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _wrong(where, holder, f"is not the key of {certificate}: name the one that is") from None
        reason = printable(error.reason or str(error), 100)
        raise _wrong(where, holder, f"has no private key in PEM ({reason}): name the file that has it") from None


def _readable(macro: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except PermissionError:
        raise _wrong(macro, path, "may not be read: chgrp joblens and chmod 640 it") from None
    except OSError as error:
        raise _wrong(macro, path, f"can't be read ({error.strerror}): name a file that is there") from None


def _wrong(macro: str, path: str, what: str) -> JobLensError:
    return JobLensError(f"{macro} = {path} {what}")


class _PassPhrase(Exception):
    """OpenSSL asks for one."""


def _no_password() -> str:
    raise _PassPhrase
