"""What the sampler's test samples in several versions of Python: nearly always in `spin` or `compared`."""

import threading


def spin(rounds):
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total


class Item:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return compared(self.value, other.value)


def compared(one, other):
    total = 0
    for number in range(200):
        total += number
    return one + total < other + total


def run_sorted():
    return sorted([Item(value * 7919 % 61) for value in range(61)])


def middle(depth):
    return middle(depth - 1) if depth else spin(20000)


def outer():
    while True:
        middle(5)
        run_sorted()


def threaded():
    while True:
        middle(2)


threading.Thread(target=threaded, daemon=True).start()
outer()
