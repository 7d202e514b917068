"""What the test of waits runs in several versions of Python: it sleeps in `f`, which `g` calls."""

import time


def f():
    time.sleep(0.02)


def g():
    f()


while True:
    g()
