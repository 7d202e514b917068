"""What a signal kills: busy until it gets SIGUSR1, and then in functions that it has never called before."""

import os
import signal

told = []


def inner():
    os.abort()


def outer():
    inner()


signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
while not told:
    sum(range(1000))
outer()
