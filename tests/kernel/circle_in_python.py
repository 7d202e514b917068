"""What a test samples whose frames it puts into a circle: the file gets the addresses of two frame objects."""

import os
import sys


def spin():
    frames = sys._getframe(), sys._getframe(1)
    with open(sys.argv[1] + ".part", "w") as file:
        print(*map(id, frames), file=file)
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    total = 0
    while True:
        total = (total + 1) % 7


def outer():
    spin()


outer()
