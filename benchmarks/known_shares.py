"""What bench_pyspy.py profiles: three functions that compute, and at the end what of its CPU time each had."""

import json
import sys
import time

spent = {}


def compute(rounds):
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total


def often():
    compute(50000)


def sometimes():
    compute(30000)


def rarely():
    compute(20000)


def main(rounds):
    for _ in range(rounds):
        for function in (often, sometimes, rarely):
            began = time.process_time()
            function()
            spent[function.__name__] = spent.get(function.__name__, 0.0) + time.process_time() - began
    print(json.dumps(spent), flush=True)


main(int(sys.argv[1]))
