"""Command lines of other people's jobs, as they may be shown: without their secrets, on one line, bounded.

What is taken out is what looks like a secret; a secret that looks like nothing else can't be known. So what is shown
goes only to those who may read a node's events, and never into a job's ad.

A job's owner chooses its command lines, also to keep joblensd busy. So each is read once, from left to right. The
expressions here begin with a fixed word or at the edge of a run, and go back over a run at most once.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Sequence

from condor_joblens.common.secret_names import LOGINS, PAIRS, PREFIXES, PROGRAMS, Program, is_place, is_secret

HIDDEN = "***"

WITHHELD = "(arguments not shown)"
"""In place of the arguments if more commands of one batch need a closer look than there is time for, or the
administrator wants none."""

LOOK_SECONDS = 0.001
"""CPU time for taking apart the commands of one batch. Meanwhile a run may end, and its starter looks after 6 ms."""

LONG_RUN = 20
"""So many letters and digits on end ask for a closer look, as in the C that looks for them (tracer/bpf_build.py)."""

_TOKEN = re.compile(r"""\s+|"[^"]*"?|'[^']*'?|[=:,;&|<>(){}\[\]?#]|[^\s"'=:,;&|<>(){}\[\]?#]+""")
"""A command line in pieces: space, what is quoted, signs, and all else."""

_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)(\s+|%20)[^\s\"']+")
_USERINFO = re.compile(r"(?<=://)[^/\s?#\"']*@")
_JWT = re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*)*")
_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{32,}(?![0-9A-Za-z])")
_WORD = re.compile(r"(?<![\w./+~-])[A-Za-z0-9][A-Za-z0-9+/_-]{30,}={0,2}(?![\w.])")
_KNOWN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, PREFIXES))})[\w./:-]{{10,}}")
_AWS_ID = re.compile(r"(?:AKIA|ASIA)[A-Z0-9]{12,}")
"""The public half of a pair: the secret half is often the next word, and looks like nothing."""

_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY.*", re.DOTALL)

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def command_line(command: bytes, cut: bool = False) -> str:
    """The arguments in `command`, separated by NUL, as one line without secrets or control characters.

    `cut`: the last argument may go on, so its last word is not shown: half a secret is not recognised as one.
    """
    text = command.decode("utf-8", "backslashreplace")
    arguments = text.rstrip("\0").split("\0")
    if cut:
        last = arguments[-1].rpartition(" ")
        arguments[-1] = f"{last[0]}{last[1]}..."
    return printable(" ".join(_Line().shown(arguments)))


def printable(text: str) -> str:
    """`text` with whatever could end a line, fool a terminal or turn the direction of reading as an escape."""
    return _UNPRINTABLE.sub(lambda found: _escape(ord(found.group())), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class Redactor:
    """Command lines of one batch. Taking words apart takes time: when it is up, nothing of them is shown."""

    def __init__(self, seconds: float = LOOK_SECONDS, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock, self._until = clock, clock() + seconds

    @property
    def is_late(self) -> bool:
        """Whether the time is up: the caller then shows WITHHELD for all that is left, which costs nothing."""
        return self._clock() > self._until

    def line(self, command: bytes, cut: bool = False) -> str:
        """As `command_line`, while there is time."""
        return WITHHELD if self.is_late else command_line(command, cut)

    def variable(self, name: str, value: bytes, cut: bool = False) -> str:
        """The value of a variable, as `command_line`, while there is time; nothing of one whose name is a secret's."""
        text = value.decode("utf-8", "backslashreplace")
        if self.is_late or (is_secret(name) and _value(name, "=", [text]) != text):
            return HIDDEN
        return command_line(value, cut)


def clipped(text: str, width: int) -> bytes:
    """`text` as UTF-8 of at most `width` bytes, cut at a character."""
    return text.encode("utf-8", "backslashreplace")[:width].decode("utf-8", "ignore").encode()


class _Line:
    """One command line, read from left to right: what has been said so far decides what the next word is."""

    def __init__(self) -> None:
        self._program = Program()
        self._letters = ""  # options of the program whose value is a secret, by now
        self._hides_next = self._hides_pair = False
        self._named = False  # the last word was the name of a secret
        self._before = ""

    def shown(self, arguments: Sequence[str]) -> list[str]:
        """The arguments as they may be shown."""
        shown = []
        for position, argument in enumerate(arguments):
            is_last = position == len(arguments) - 1
            if is_last and self._program.last and self._program.last in arguments[:-1]:
                shown.append(HIDDEN)
            elif self._hides_next and not argument.startswith("-") and not _is_small(argument):
                self._hides_next = False
                shown.append(HIDDEN)  # all of it: in one argument a space belongs to the secret
            else:
                shown.append(_by_look(self._text(argument)))
        return shown

    def _text(self, text: str) -> str:
        """An argument, or what is quoted in one: a shell's -c has a whole command line in one argument."""
        tokens, shown, begin = _TOKEN.findall(text), [], 0
        while begin < len(tokens):
            end = begin
            while end < len(tokens) and not tokens[end][0].isspace():
                end += 1
            if end == begin:
                shown.append(tokens[begin])
                begin += 1
                continue
            shown.append(self._word(tokens[begin:end]))
            # `Authorization: token 123`: without quotes around the value it goes on to the end
            if self._named and tokens[end - 1] == ":" and end < len(tokens):
                self._named = False
                shown += [tokens[end], HIDDEN]
                break
            begin = end
        return "".join(shown)

    def _word(self, tokens: list[str]) -> str:
        word = "".join(tokens)
        named, self._named, before, self._before = self._named, False, self._before, word
        if self._hides_next and not word.startswith("-") and not _is_small(word):
            self._hides_next = False
            if tokens[0][0] in "\"'" and tokens[1:] and tokens[1] in ",;)}]":
                return _hidden(tokens[0]) + self._assignments(tokens[1:])
            return _hidden(word)
        self._hides_next = False
        if self._hides_pair:
            self._hides_pair = False
            if ":" in word and not word.replace(":", "").isdigit():
                return _hidden(word)
        if named and word[0] in "=:":  # NAME = VALUE
            self._hides_next = len(word) == 1
            return word if len(word) == 1 else word[0] + HIDDEN
        self._look_for_program(word)
        shown = self._option(word) or self._account(word)
        if shown:
            return shown
        is_set = before == "set" and word.strip(_NAME_CHARACTERS) == "" and is_secret(word)
        if is_set or _AWS_ID.fullmatch(word):  # aws configure set NAME VALUE
            self._hides_next = True
            return word
        return self._assignments(tokens)

    def _look_for_program(self, word: str) -> None:
        found = PROGRAMS.get(posixpath.basename(word).lstrip("\\"))  # a script's \curl is no alias
        if found is not None:
            self._program, self._letters = found, found.letters
        elif word in LOGINS:
            self._letters += self._program.login

    def _option(self, word: str) -> str:
        """An option as it may be shown, if that is all there is to the word; it decides about the next word."""
        if word[0] != "-" or len(word) < 2:
            return ""
        if word in self._program.words:
            self._hides_next = True
            return word
        if word[1] != "-":
            for place, letter in enumerate(word[1:], 2):
                if letter in self._letters:
                    self._hides_next = len(word) == place
                    return word if len(word) == place else word[:place] + HIDDEN
                if not self._program.taking or letter in self._program.taking or not letter.isalpha():
                    break
        name = word.lstrip("-")
        if word in PAIRS:
            self._hides_pair = True
            return word
        pair, _, value = word.partition("=")
        if pair in PAIRS and ":" in value and not value.replace(":", "").isdigit():
            return f"{pair}={_hidden(value)}"
        if name.strip(_NAME_CHARACTERS) == "" and is_secret(name) and not is_place(name):
            self._hides_next = True
            return word
        return ""

    def _account(self, word: str) -> str:
        """USER/PASSWORD@PLACE of a program that takes it."""
        if not self._program.account or word[0] == "-" or "/" not in word[1:]:
            return ""
        self._program = self._program._replace(account=False)
        user, _, rest = word.partition("/")
        _, at, place = rest.rpartition("@")
        return f"{user}/{HIDDEN}{at}{place if at else ''}"

    def _assignments(self, tokens: list[str]) -> str:
        """A word without the values of NAME=VALUE, NAME:VALUE and "NAME": "VALUE"."""
        shown: list[str] = []
        name, place, is_quoted = "", 0, False
        while place < len(tokens):
            token = tokens[place]
            if token in "=:" and name and is_secret(name):
                end = _end_of_value(tokens, place + 1)
                shown += [token, _value(name, token, tokens[place + 1 : end])]
                follows = end == place + 1 == len(tokens)
                self._hides_next = follows and (token == "=" or is_quoted)
                self._named = follows and not self._hides_next
                name, place = "", end
                continue
            is_quoted = token[0] in "\"'"
            if is_quoted:
                name = token.strip(token[0])
                token = self._quoted(token)
            else:
                name = token[len(token.rstrip(_NAME_CHARACTERS)) :]
            shown.append(token)
            place += 1
        self._named = self._named or (bool(name) and is_secret(name))
        return "".join(shown)

    def _quoted(self, token: str) -> str:
        """What is quoted can be a whole command line. Quotes of one kind can't hold the same kind: this ends."""
        inner, end = token[1:], ""
        if len(token) > 1 and token[-1] == token[0]:
            inner, end = token[1:-1], token[-1]
        return token[0] + _by_look(self._text(inner)) + end


def _end_of_value(tokens: list[str], begin: int) -> int:
    """Where the value that begins there ends: with the word, before the next field of a form, or with its quotes."""
    for place in range(begin, len(tokens)):
        is_field = tokens[place] == "," and (place + 2 < len(tokens) and tokens[place + 2] in "=:")
        if tokens[place] in "&;|" or is_field or (tokens[place] in ",}])" and tokens[begin][0] in "\"'"):
            return place
    return len(tokens)


def _value(name: str, sign: str, tokens: list[str]) -> str:
    value = "".join(tokens)
    is_path = value[:1] in ("/", ".", "~", "$") and is_place(name)
    is_address = "proxy" in name.lower() and "@" not in value and (value.startswith("http://") or ":3128" in value)
    if not value or is_path or is_address or _is_small(value) or (sign == ":" and value.startswith("//")):
        return value
    return _hidden(value)


def _is_small(value: str) -> bool:
    """A number as an encoder's -pass takes it."""
    return len(value) <= 2 and value.isdigit()


def _hidden(value: str) -> str:
    """The value's quotes stay."""
    return f"{value[0]}{HIDDEN}{value[0]}" if value[0] in "\"'" else HIDDEN


def _by_look(text: str) -> str:
    """A text without what looks like a secret by itself."""
    text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    text = _KNOWN.sub(HIDDEN, text)
    text = _JWT.sub(HIDDEN, text)
    text = _HEX.sub(HIDDEN, text)
    text = _PEM.sub(HIDDEN, text)
    return _WORD.sub(lambda found: HIDDEN if _is_random(found.group()) else found.group(), text)


def _is_random(word: str) -> bool:
    """Whether a long word is made of long runs of mixed characters, as no path and no data set's name is."""
    runs = re.split(r"[/_+-]", word.rstrip("="))
    mixed = [run for run in runs if re.search("[a-z]", run) and re.search("[A-Z]", run) and re.search("[0-9]", run)]
    return bool(mixed) and max(map(len, mixed)) >= LONG_RUN
