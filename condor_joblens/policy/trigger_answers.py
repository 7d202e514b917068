"""What joblensd believes of the child's answers about triggers: right types, and within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level, parse_level
from condor_joblens.policy.child_frames import BadFrame, Message

MAX_HANDLERS, MAX_TESTS = 100, 50
MAX_ACTS, MAX_FAILED, MAX_SKIPPED, MAX_FILES = 200, 100, 1000, 200
MAX_VALUES = 256  # of one test
EXACT = 2.0**53  # as an integer and as float64 numbers below are the same
MAX_FILE = 60  # characters of a file's name
MAX_WORDS = 150  # characters of a note, an event or a reason
MAX_WHAT = 300
SECONDS = 1.0, 86400.0  # that a level is raised for
MAX_RUN = (1 << 64) - 1


class How(Enum):
    """What a field is tested for."""

    ONE_OF = "one_of"
    ABOVE = "above"
    BELOW = "below"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class Verb(Enum):
    """What a handler can have done."""

    RAISE = "raise"
    EVIDENCE = "evidence"
    TAG = "tag"
    NOTE = "note"
    SEND = "send"


@dataclass(frozen=True)
class Test:
    """A test that an event must pass for a handler to be asked; its values are those of trigger_engine.Test."""

    field: str
    how: How
    values: tuple[str | bool | float, ...]


@dataclass(frozen=True)
class Handler:
    """One `on`, as people know it."""

    file: str
    line: int
    kind: str
    asks: tuple[str, ...]
    tests: tuple[Test, ...] = ()

    @property
    def name(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Loaded:
    """The triggers that are in force."""

    handlers: tuple[Handler, ...]
    paths: tuple[str, ...]  # numbers that a row is to have
    errors: tuple[str, ...]  # a line for each file that was not taken


@dataclass(frozen=True)
class Action:
    """What a handler wants done about a run."""

    run: int  # its run_number
    handler: Handler
    verb: Verb
    words: str = ""  # of a note or an event, or why a level is raised
    level: Level | None = None
    seconds: float = 0.0
    mail: bool = False


@dataclass(frozen=True)
class Failed:
    """A handler failed on a run."""

    run: int
    handler: Handler
    what: str


@dataclass(frozen=True)
class Did:
    """What came of a batch."""

    actions: tuple[Action, ...]
    failed: tuple[Failed, ...]
    worked: tuple[str, ...]  # files
    dropped: int  # actions that were too many at once
    skipped: tuple[tuple[int, int], ...]  # run, and how many of its events were beyond its share


def loaded(message: Message) -> Loaded:
    """Raises BadFrame."""
    handlers = []
    for told in _list(message, "handlers", MAX_HANDLERS):
        if not isinstance(told, list) or len(told) != 5 or not all(isinstance(part, list) for part in told[3:]):
            raise BadFrame("a handler that is none")
        file, line, kind, asks, tests = told
        if not isinstance(line, int) or max(len(asks), len(tests)) > MAX_TESTS:
            raise BadFrame("a handler that is none")
        words = tuple(_text(one, 100) for one in asks)
        handlers.append(Handler(_text(file, MAX_FILE), line, _text(kind, 20), words, tuple(map(_test, tests))))
    errors = []
    for error in _list(message, "errors", 50):
        if not isinstance(error, dict) or not isinstance(error.get("line"), int):
            raise BadFrame("an error that is none")
        where = f"{_text(error.get('file'), MAX_FILE)}:{error['line']}"
        errors.append(f"{where}: {_text(error.get('what'), MAX_WHAT)}")
    paths = tuple(_text(path, 100) for path in _list(message, "paths", 2000))
    return Loaded(tuple(handlers), paths, tuple(errors))


def _test(told: object) -> Test:
    if not isinstance(told, list) or not 2 <= len(told) <= MAX_VALUES + 2:
        raise BadFrame("a test that is none")
    field, how, *values = told
    try:
        test = Test(_text(field, 60), How(how), tuple(values))
    except ValueError:
        raise BadFrame("a test that is none") from None
    if not all(isinstance(value, str) or _is_exact(value) for value in values):
        raise BadFrame("a test of what is no plain value")
    if test.how is not How.ONE_OF and (len(values) != 1 or isinstance(values[0], (str, bool))):
        raise BadFrame("a bound that is no number")
    return test


def _is_exact(value: object) -> bool:
    return isinstance(value, (bool, int, float)) and -EXACT < value < EXACT


def did(message: Message, handlers: Sequence[Handler]) -> Did:
    """Raises BadFrame."""
    return Did(
        tuple(_action(told, handlers) for told in _list(message, "acts", MAX_ACTS)),
        tuple(_failed(told, handlers) for told in _list(message, "failed", MAX_FAILED)),
        tuple(_text(name, MAX_FILE) for name in _list(message, "worked", MAX_FILES)),
        _number(message.get("dropped"), 1 << 31),
        tuple(_pair(told) for told in _list(message, "skipped", MAX_SKIPPED)),
    )


def _action(told: object, handlers: Sequence[Handler]) -> Action:
    if not isinstance(told, list) or len(told) != 5:
        raise BadFrame("an action that is none")
    run, handler = _number(told[0], MAX_RUN), _handler(told[1], handlers)
    try:
        verb = Verb(told[2])
    except ValueError:
        raise BadFrame("an action that is none") from None
    first, second = _text(told[3], MAX_WORDS), _text(told[4], MAX_WORDS)
    if verb is Verb.RAISE:
        level, seconds = _raised(first)
        return Action(run, handler, verb, second, level, seconds)
    return Action(run, handler, verb, first, mail=verb is Verb.SEND and second == "mail")


def _raised(told: str) -> tuple[Level, float]:
    word, _, number = told.partition(" ")
    try:
        level, seconds = parse_level(word), float(number)
    except ValueError:
        raise BadFrame("a level that is none") from None
    if level is Level.OFF or not SECONDS[0] <= seconds <= SECONDS[1]:
        raise BadFrame("a level that has no end")
    return level, seconds


def _failed(told: object, handlers: Sequence[Handler]) -> Failed:
    if not isinstance(told, list) or len(told) != 3:
        raise BadFrame("a failure that is none")
    return Failed(_number(told[0], MAX_RUN), _handler(told[1], handlers), _text(told[2], MAX_WHAT))


def _pair(told: object) -> tuple[int, int]:
    if not isinstance(told, list) or len(told) != 2:
        raise BadFrame("no pair")
    return _number(told[0], MAX_RUN), _number(told[1], 1 << 31)


def _handler(index: object, handlers: Sequence[Handler]) -> Handler:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(handlers):
        raise BadFrame("a handler that nobody knows")
    return handlers[index]


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadFrame("no number")
    return value


def _list(message: Message, key: str, most: int) -> list[object]:
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise BadFrame(f"{key} is no list of at most {most}")
    return value


def _text(value: object, most: int) -> str:
    if not isinstance(value, str):
        raise BadFrame("no text")
    return printable(value[: most + 1], most)
