"""What a signal kills: busy until it gets SIGUSR1, and then in functions that it has never called before.

It makes the file that it is told when it begins.
"""

import os
import signal
import sys

told = []


def inner():
    os.abort()


def outer():
    inner()


signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
open(sys.argv[1], "w").close()
while not told:
    sum(range(1000))
outer()
