"""What the test of functions that end runs in several versions of Python: it makes functions, and forgets them again.

A later one mostly lies where an earlier one was, names and lines included. Names of all that belong together end with
the number of their caller, who stays.

make_functions_in_python.py [FILE]     with a file, all are of that one, and begin on its first lines: only names differ
"""

import sys
import time

COUNT = 40
FILE = sys.argv[1] if len(sys.argv) > 1 else ""
SOURCE = """
def inner_{0:02}(until, clock):
    while clock() < until:
        pass


def outer_{0:02}(until, clock):
    inner_{0:02}(until, clock)


made = outer_{0:02}
"""

callers = {}
exec("\n".join(f"def caller_{i:02}(made, until, clock): made(until, clock)" for i in range(COUNT)), callers)  # noqa: S102

number = 0
while True:
    number = (number + 7) % COUNT
    found = {}
    source = SOURCE.format(number) if FILE else "\n" * number + SOURCE.format(number)
    exec(compile(source, FILE or f"/made/{number:02}", "exec"), found)  # noqa: S102
    callers[f"caller_{number:02}"](found["made"], time.time() + 0.008, time.time)
