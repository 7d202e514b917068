"""A job of Python whose threads all wait for ever, and which has written before where each of them is.

    stand_still.py FILE      each line of FILE becomes: the thread's number, and its frames as function, file, line

It runs in every version of Python from 3.6 on.
"""

import json
import os
import sys
import threading

OUT = open(sys.argv[1], "a")  # noqa: SIM115
LOCK, TELLING = threading.Lock(), threading.Lock()
READ, WRITE = os.pipe()


def tell():
    """Writes where its caller is. Whoever calls it waits in the same line, so that is true from then on."""
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    with TELLING:
        OUT.write(json.dumps([threading.current_thread().name, frames]) + "\n")
        OUT.flush()


def read(times):
    if times:
        return read(times - 1)
    return tell(), os.read(READ, 1)


class Größe:
    """Not all names are ASCII."""

    def wait_for_lock(self, key=None):
        def inner():
            (tell(), LOCK.acquire())

        return inner()


def generated(count):
    for _ in range(count):
        yield max(
            [1, 2],
            key=Größe().wait_for_lock,
        )


def with_more_lines():
    """A call on a later line than that of the expression that it is in."""
    return [
        each
        for each in map(
            lambda number: (
                number,
                read(2),
            ),
            [1],
        )
    ]


async def awaited():
    try:
        raise ValueError
    except ValueError:
        return read(0)


async def awaits():
    return await awaited()


def run_awaits():
    awaits().send(None)


def run_code():
    """Code without a file; the line is 300 further than its function's first."""
    exec(compile("def f():\n" + " pass\n" * 300 + " read(1)\nf()", "<generated \U0001f600>", "exec"), {"read": read})  # noqa: S102


def run_generated():
    for _ in generated(2):
        pass


class Sorted:
    """Compared by C, which calls it."""

    def __lt__(self, other):
        return read(60)


def run_sorted():
    sorted([Sorted(), Sorted()])


class Made:
    """From Python 3.12 on the interpreter calls this by code of its own, once it has done so a few times."""

    def __init__(self, number):
        if number == 99:
            read(1)


def run_made():
    for number in range(100):
        Made(number)


def main():
    LOCK.acquire()
    for work in (run_generated, with_more_lines, run_awaits, run_code, run_sorted, run_made):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    list(map(lambda number: [read(number) for _ in "x"], [3]))


main()
