"""slow_reader.py send PORT: sends BYTES at once, and ends.

slow_reader.py read PORT GO: reads them when the file GO is there.
"""

import os
import socket
import sys
import time

BYTES = 300_000


def send(port: int) -> None:
    """All of it fits into the kernel's buffer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BYTES)
        time.sleep(1)  # the node knows the job by then
        connection.sendall(b"x" * BYTES)


def read(port: int, go: str) -> None:
    """One connection, of which little is taken at first."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        connection, _ = listening.accept()
    with connection:
        while not os.path.exists(go):
            time.sleep(0.05)
        while connection.recv(65536):
            pass


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(int(sys.argv[2]))
    else:
        read(int(sys.argv[2]), sys.argv[3])
