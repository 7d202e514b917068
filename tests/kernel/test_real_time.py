"""joblensd's real-time priority in this kernel, and the kernel's bound of it."""

from __future__ import annotations

import signal
import subprocess
import sys

REAL_TIME = """
import os, subprocess, time
from condor_joblens.agent import machine

def policy(pid=0):
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK

said = []
machine.LONGEST_AT_A_TIME = 300_000
machine.bound_real_time()
machine.raise_priority(said.append)
assert said == [] and policy() == os.SCHED_RR
"""


def ended(script: str) -> int:
    ran = subprocess.run([sys.executable, "-c", REAL_TIME + script], stderr=subprocess.PIPE, text=True, timeout=120)
    assert ran.returncode <= 0, ran.stderr
    return ran.returncode


def test_who_hangs_is_ended_by_the_kernel() -> None:
    hang = "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n    pass\n"
    assert ended(hang) == -signal.SIGKILL


def test_who_sleeps_now_and_then_is_not() -> None:
    work = """
began = time.process_time()
while time.process_time() < began + 0.6:
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    time.sleep(0.002)
"""
    assert ended(work) == 0


def test_a_process_that_works_for_us_has_the_same_bound() -> None:
    script = """
hang = 'import sys, time\\nsys.stdin.readline()\\nend = time.monotonic() + 60\\nwhile time.monotonic() < end: pass'
helper = subprocess.Popen(["python3", "-c", hang], stdin=subprocess.PIPE, user=65534)  # as joblensd's: another user
assert policy(helper.pid) == os.SCHED_OTHER
machine.raise_priority(said.append, helper.pid)
assert said == [] and policy(helper.pid) == os.SCHED_RR
helper.communicate(b"go\\n")
assert helper.returncode == -9
"""
    assert ended(script) == 0
