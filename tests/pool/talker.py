"""talker.py GO END: waits for the file GO, talks to servers of this machine, and waits for the file END.

talker.py serve PORT: such a server. It reads each connection to its end and answers with 1000 bytes.
"""

import contextlib
import os
import socket
import sys
import time

PORT, NOBODY = 18094, 18095


def serve(port: int) -> None:
    """For ever, at all addresses."""
    listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            while connection.recv(65536):
                pass
            connection.sendall(b"a" * 1000)


def talk(address: str, size: int) -> None:
    """One connection that carries so many bytes there, and 1000 back."""
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(b"x" * size)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def wait_for(path: str) -> None:
    """Until somebody has made the file."""
    while not os.path.exists(path):
        time.sleep(0.05)


def work() -> None:
    """Five connections to one address, two to another, three that are refused, and two questions for a name server."""
    for _ in range(5):
        talk("127.0.0.1", 10_000)
    for _ in range(2):
        talk("::1", 3_000)
    for _ in range(3):
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", NOBODY))
    with socket.socket(type=socket.SOCK_DGRAM) as resolver:
        for _ in range(2):
            resolver.sendto(b"q" * 30, ("127.0.0.1", 53))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    wait_for(sys.argv[1])
    work()
    wait_for(sys.argv[2])
