"""Command lines of other people's jobs, as they may be shown: without their secrets, on one line, bounded.

What is taken out is what looks like a secret; a secret that looks like nothing else can't be known. So what is shown
goes only to those who may read a node's events, and never into a job's ad.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Sequence

HIDDEN = "***"

WITHHELD = "(arguments not shown)"
"""In place of the arguments if more commands of one batch need a closer look than there is time for."""

LOOK_SECONDS = 0.01
"""CPU time for taking apart the commands of one batch."""

_SECRET = (
    r"(?:tok(?:en|)\b|token|secret|passw|passphrase|passwd|pwd|credential|cookie|bearer|authori[sz]ation|auth\b|proxy"
    r"|session|signature|(?:api|access|private|secret|auth|encryption|master|license|ssh|account)[_.-]?key|key\b|_key|key_)"
)
_NAME = rf"[\w.-]*{_SECRET}[\w.-]*"

_VALUE = r"""(?<=")[^"]+|(?<=')[^']+|[^\s&"',;]+"""
_ASSIGNED = re.compile(rf"""(?i)(?P<name>(?<![\w.-]){_NAME})(?P<is>["']?\s*[=:]\s*["']?)(?P<value>{_VALUE})""")
"""KEY=VALUE, --key=VALUE, "key": "VALUE", Header: VALUE."""

_OPTION = re.compile(rf"(?i)-{{1,2}}{_NAME}")
"""An option whose value is the next word."""

_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)(\s+)[^\s\"']+")
_USERINFO = re.compile(r"(?<=://)[^/\s?#\"']*@")
_JWT = re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*)*")
_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{32,}(?![0-9A-Za-z])")
_WORD = re.compile(r"(?<![\w./+~-])[A-Za-z0-9][A-Za-z0-9+/_-]{30,}={0,2}(?![\w.])")

_PATHS = re.compile(r"(?i)(?:x509_user_proxy|.*(?:file|path|dir|_log))")
"""Names whose value says where a secret lies, not what it is."""

_SHORT = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "sshpass", "7z", "7za"), "p"),
    **dict.fromkeys(("zip", "unzip"), "P"),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami"), "w"),
    **{"curl": "uU", "smbclient": "U", "redis-cli": "a"},
}
"""Programs, and their short options whose value, in the same word or the next, is a secret."""

_LONG = {
    "curl": ("--user", "--proxy-user", "--oauth2-bearer", "--pass"),
    "openssl": ("-passin", "-passout", "-pass", "-k", "-K"),
}

_LAST = {"htpasswd": "-b"}
"""With this option the last word is a secret."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

SIGNS = tuple(
    word.encode()
    for word in (
        *("tok", "secret", "pass", "pwd", "cred", "cookie", "bearer", "basic", "digest", "negotiate", "auth", "proxy"),
        *("session", "signature", "key", "@", "eyj", "mysql", "mariadb", "7z", "zip", "curl", "ldap", "smbclient"),
        *("redis", "openssl", "htpasswd"),
    )
)
"""Whatever may hold a secret has one of these in it, or LONG_RUN letters and digits on end; most commands do not."""

LONG_RUN = 20
"""As in the C that looks for them (tracer/bpf_build.py)."""


def command_line(command: bytes, cut: bool = False) -> str:
    """The arguments in `command`, separated by NUL, as one line without secrets or control characters.

    `cut`: the last argument may go on, so its last word is not shown: half a secret is not recognised as one.
    """
    text = command.decode("utf-8", "backslashreplace")
    arguments = text.rstrip("\0").split("\0")
    if cut:
        last = arguments[-1].rpartition(" ")
        arguments[-1] = f"{last[0]}{last[1]}..."
    return printable(" ".join(_without_secrets(arguments)))


def printable(text: str) -> str:
    """`text` with whatever could end a line, fool a terminal or turn the direction of reading as an escape."""
    return _UNPRINTABLE.sub(lambda found: _escape(ord(found.group())), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class Redactor:
    """Command lines of one batch. Taking words apart takes time: when it is up, only programs are shown."""

    def __init__(self, seconds: float = LOOK_SECONDS, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock, self._until = clock, clock() + seconds

    def line(self, command: bytes, cut: bool = False) -> str:
        """As `command_line`, while there is time."""
        if self._clock() > self._until:
            return f"{printable(_base(command))} {WITHHELD}"
        return command_line(command, cut)


def clipped(text: str, width: int) -> bytes:
    """`text` as UTF-8 of at most `width` bytes, cut at a character."""
    return text.encode("utf-8", "backslashreplace")[:width].decode("utf-8", "ignore").encode()


def _base(command: bytes) -> str:
    first = command.split(b"\0", 1)[0].split(b" ", 1)[0]
    base = posixpath.basename(first.decode("utf-8", "backslashreplace"))
    return _by_look(base)


def _without_secrets(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    tool = ""
    hide_next = False
    for position, argument in enumerate(arguments):
        words = re.split(r"(\s+)", argument)  # a shell's -c has a whole command line in one
        for index in range(0, len(words), 2):
            word = words[index]
            if not word:
                continue
            name = posixpath.basename(word)
            if name in _SHORT or name in _LONG or name in _LAST:
                tool = name
            if hide_next and not word.startswith("-"):
                words[index], hide_next = HIDDEN, False
                continue
            words[index], hide_next = _option(tool, word)
        last = position == len(arguments) - 1
        if last and tool in _LAST and _LAST[tool] in arguments[:-1]:
            words = [HIDDEN]
        shown.append(_by_look("".join(words)))
    return shown


def _option(tool: str, word: str) -> tuple[str, bool]:
    """The word as it may be shown, and whether the one behind it may not."""
    if word in _LONG.get(tool, ()):
        return word, True
    letters = _SHORT.get(tool, "")
    if letters and len(word) > 1 and word[0] == "-" and word[1] in letters:
        return (word, True) if len(word) == 2 else (word[:2] + HIDDEN, False)
    return word, bool(_OPTION.fullmatch(word)) and not _PATHS.fullmatch(word)


def _by_look(argument: str) -> str:
    """An argument without what looks like a secret by itself."""
    argument = _SCHEME.sub(rf"\1\2{HIDDEN}", argument)
    argument = _USERINFO.sub(f"{HIDDEN}@", argument)
    argument = _ASSIGNED.sub(_hide_value, argument)
    argument = _JWT.sub(HIDDEN, argument)
    argument = _HEX.sub(HIDDEN, argument)
    return _WORD.sub(lambda found: HIDDEN if _is_random(found.group()) else found.group(), argument)


def _hide_value(found: re.Match[str]) -> str:
    value = found["value"]
    is_path = value[:1] in "/.~$" and _PATHS.fullmatch(found["name"].lstrip("-"))
    if is_path or value == HIDDEN or value.startswith("//"):
        return found.group()
    return f"{found['name']}{found['is']}{HIDDEN}"


def _is_random(word: str) -> bool:
    """Whether a long word is made of long runs of mixed characters, as no path and no data set's name is."""
    runs = re.split(r"[/_+-]", word.rstrip("="))
    mixed = [run for run in runs if re.search("[a-z]", run) and re.search("[A-Z]", run) and re.search("[0-9]", run)]
    return bool(mixed) and max(map(len, mixed)) >= LONG_RUN
