"""Profiles as a job could have them, and names as a bad one would."""

from __future__ import annotations

import random

from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack, View

HOSTILE = [
    "<script>alert(1)</script>",
    "operator<< <char, std::char_traits<char> >(std::ostream&)",
    "a'b\"c&d]]>e--><!--",
    "\x1b]0;owned\x07\x1b[31mred",
    "two\nlines\r\x00\x9b",
    "\u202ereversed \udc80 \ufffe \U000e0001",
    f"std::tuple<{'int, ' * 2000}int>",
    "</text></g></svg>",
    "javascript:alert(1)",
    "a;b 7",
]

PYTHON = Frame("fit_tracks", Kind.PYTHON, "/home/alice/reco/fit.py", 41)
FILL = Frame("Tree::Fill(int)", Kind.NATIVE, "/opt/lib/libTree.so", 0, 0x1234, "ab12")
READ = Frame("vfs_read", Kind.KERNEL)
START = Frame("_start", Kind.NATIVE, "/usr/bin/python3.11", 0, 0x100, "cd34")


def profile() -> Profile:
    """10 samples: 6 in Fill, 3 in a read that it made, 1 in Python."""
    found = Profile(1.7e9, 1.7e9 + 60, 99, "12.0", "node01", lost=2, broken=1, not_ours=3)
    found.add(Stack((START, PYTHON, FILL), 100, "python3", "python3"), 6)
    found.add(Stack((START, PYTHON, FILL, READ), 100, "python3", "reader"), 3)
    found.add(Stack((START, PYTHON), 101, "python3", "python3", is_guessed=True), 1)
    return found


LOCK = Frame("waits for a lock (futex)", Kind.KERNEL)
PIPE = Frame("waits for a pipe (read)", Kind.KERNEL)


def waits() -> Profile:
    """2 s in 12 waits: 1.5 s for a lock, 0.5 s for a pipe; of 0.25 s more there is no stack."""
    found = Profile(1.7e9, 1.7e9 + 60, 99, "12.0", "node01", lost=250_000_000, view=View.OFF_CPU, waits=12, taken=9)
    found.add(Stack((START, FILL, LOCK), 100, "python3", "python3"), 1_500_000_000)
    found.add(Stack((START, PYTHON, PIPE), 100, "python3", "reader"), 500_000_000)
    return found


def hostile() -> Profile:
    """Every bad name as that of a function, a file, a process and a thread, in every kind of code."""
    found = Profile(1.7e9, 1.7e9 + 60, 99, HOSTILE[0], HOSTILE[1])
    for number, name in enumerate(HOSTILE):
        for kind in (Kind.NATIVE, Kind.PYTHON, Kind.KERNEL):
            frame = Frame(name, kind, "" if kind is Kind.KERNEL else f"/{name}", number if kind is Kind.PYTHON else 0)
            found.add(Stack((START, frame, FILL), number, name, name), 10)
    return found


def random_profile(seed: int, stacks: int = 200) -> Profile:
    """A profile of any shape."""
    rng = random.Random(seed)
    found = Profile(1.7e9, 1.7e9 + 1800, 99, "12.0", "node01", lost=12, not_ours=5)
    names = ["Tree::Fill(int)", "Kalman::propagate(Track&, Field const&)", "Field::at(Vector3 const&) const", "malloc"]
    for _ in range(stacks):
        frames = [START, *([PYTHON] * rng.randrange(2))]
        for _ in range(rng.randrange(1, 9)):
            frames.append(Frame(rng.choice(names), Kind.NATIVE, rng.choice(["/x/libTree.so", "/x/libm.so.6"])))
        found.add(Stack(tuple(frames), rng.choice([100, 101]), "python3", "python3"), rng.randrange(1, 500))
    return found
