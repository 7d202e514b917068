"""Mail of firings: one message for several of them, in plain text. No word of a job's becomes a header's end."""

from __future__ import annotations

import hashlib
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.rules.firings import Firing
from condor_joblens.hub.rules.settings import Mail
from condor_joblens.hub.web.health import moment
from condor_joblens.hub.web.people import is_address

SECONDS = 30.0
_MOST_LINE = 500
_MOST_SUBJECT = 120


def message(mail: Mail, to: str, firings: Sequence[Firing], pages: str, now: float) -> EmailMessage:
    """One for all of these. Raises JobLensError: `to` is no address."""
    if not is_address(to):
        raise JobLensError(f"{printable(to)} is no address of mail")
    found = EmailMessage()
    first = firings[0]
    subject = first.title if len(firings) == 1 else f"{len(firings)} alarms, first: {first.title}"
    found["Subject"] = printable(f"JobLens: {subject}", _MOST_SUBJECT)
    found["From"], found["To"], found["Date"] = mail.sender, to, formatdate(now)
    name = hashlib.sha256("".join(f"{one.id}/" for one in firings).encode() + to.encode()).hexdigest()[:32]
    found["Message-ID"] = f"<joblens.{name}@{mail.sender.rpartition('@')[2]}>"
    found["Auto-Submitted"] = "auto-generated"
    lines = [line for firing in firings for line in _lines(firing)]
    lines += [f"All of them: {pages}/rules" if pages else "All of them are on the hub's page Rules.", ""]
    found.set_content("\n".join(lines))
    return found


def _lines(firing: Firing) -> list[str]:
    about = f"    since {moment(firing.begun)}; rule {printable(firing.rule)}, {firing.count} at most"
    return [printable(firing.sentence, _MOST_LINE), about, ""]


def send(mail: Mail, letter: EmailMessage) -> None:
    """Raises JobLensError: the server has not taken it."""
    password = _password(mail)
    try:
        with _connected(mail) as server:
            if mail.encryption == "starttls":
                server.starttls(context=ssl.create_default_context())
            if mail.user:
                server.login(mail.user, password)
            server.send_message(letter)
    except (OSError, ValueError, smtplib.SMTPException) as error:  # ValueError: letters that SMTP has not
        raise JobLensError(
            f"the mail server {mail.host}:{mail.port} does not take mail: {printable(str(error), 200)}"
        ) from None


def _password(mail: Mail) -> str:
    """Raises JobLensError."""
    if not mail.user:
        return ""
    try:
        with open(mail.password_file, "rb") as file:
            found = file.read().rstrip(b"\r\n")
    except OSError as error:
        raise JobLensError(f"the password of mail can't be read: {printable(str(error), 200)}") from None
    if not found.isascii():  # smtplib would say which letter it can't send
        raise JobLensError("the password of mail has letters that are not ASCII, which can't be sent")
    return found.decode("ascii")


def _connected(mail: Mail) -> smtplib.SMTP:
    if mail.encryption == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(mail.host, mail.port, timeout=SECONDS, context=context)
    return smtplib.SMTP(mail.host, mail.port, timeout=SECONDS)
