"""A job that does a little of everything, waits until it may end, and prints what it knows of itself, as JSON.

usage: worker.py [FILE]     ends when FILE is there (at once without one)
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CHUNK = b"x" * 65536
CHUNKS = 100
PAYLOAD = b"y" * 1_000_000
PEAK = 96 << 20


def burn(seconds: float) -> None:
    """Use the CPU until the process has had that much of it."""
    while sum(os.times()[:2]) < seconds:
        sum(range(10_000))


def write_and_read() -> None:
    """Files: 6.5 MB each way."""
    with tempfile.NamedTemporaryFile(dir=".") as file:
        for _ in range(CHUNKS):
            os.write(file.fileno(), CHUNK)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        while os.read(file.fileno(), len(CHUNK)):
            pass


def have_children() -> dict[str, int]:
    """Ten programs, of which three fail; a child that a signal ends; one that needs much memory for a moment."""
    for number in range(10):
        subprocess.run(["/bin/sh", "-c", f"exit {int(number < 3)}"], check=False)
    killed = os.fork()
    if not killed:
        signal.pause()
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    large = os.fork()
    if not large:
        bytearray(PEAK)
        os._exit(0)
    os.waitpid(large, 0)
    return {"Forked": 12, "Executed": 1 + 10, "Exited": 12 + 1, "Failed": 3, "Signalled": 1}


def talk() -> dict[str, int]:
    """A TCP connection with oneself, closed by both ends."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while connection.recv(65536):
                pass
            connection.sendall(b"thank you")

    server = threading.Thread(target=serve)
    server.start()
    with socket.create_connection(listener.getsockname()) as connection:
        connection.sendall(PAYLOAD)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(100)
    server.join()
    sent = len(PAYLOAD) + len(answer)
    return {"SentBytes": sent, "ReceivedBytes": sent, "Connected": 1, "Accepted": 1, "Failed": 0}


def main() -> None:
    """Work, wait, tell."""
    process = have_children()
    tcp = talk()
    write_and_read()
    burn(1.0)
    while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
        time.sleep(0.1)
    with open("/proc/self/io", encoding="ascii") as file:
        io = {name: int(value) for name, value in (line.split(": ") for line in file)}
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    truth = {
        "Process": process,
        "Tcp": tcp,
        "Io": {
            "CallReadBytes": io["rchar"],
            "CallWriteBytes": io["wchar"],
            "ReadCalls": io["syscr"],
            "WriteCalls": io["syscw"],
        },
        "Cpu": {"Seconds": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime},
        "Memory": {
            "LargestProcessPeakBytes": max(own.ru_maxrss, children.ru_maxrss) * 1024,
            "MinorFaults": own.ru_minflt + children.ru_minflt,
        },
    }
    os.write(1, json.dumps(truth).encode())
    os._exit(0)  # Python's own tidying up after a fork copies pages: hundreds of faults that the truth lacks


main()
