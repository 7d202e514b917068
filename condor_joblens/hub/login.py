"""`joblens-hub login`: an address by which this user's browser logs in, once. Who it is, the kernel tells the hub."""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub login", description="Prints an address for your browser.")
    parser.add_argument("--socket", metavar="FILE", default="/run/joblens-hub/pages.sock", help="(%(default)s)")
    parser.add_argument("--address", metavar="URL", default="", help="of the pages; without it, as the hub knows it")
    options = parser.parse_args(arguments)
    try:
        answer = _asked(options.socket)
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"joblens-hub: {options.socket} does not answer ({error}): is the hub running?", file=sys.stderr)
        return 1
    if "path" not in answer:
        print(f"joblens-hub: {answer.get('error')}: the administrator names people in the hub's file", file=sys.stderr)
        return 1
    print((options.address or answer["address"]).rstrip("/") + answer["path"])
    return 0


def _asked(path: str) -> dict[str, str]:
    """The hub's answer by this socket. Raises OSError, HTTPException, ValueError."""
    connection = http.client.HTTPConnection("localhost", timeout=20)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        connection.sock.connect(path)
        connection.request("GET", "/login")
        answer = json.loads(connection.getresponse().read(65536))
    finally:
        connection.close()
    is_whole = isinstance(answer, dict) and all(isinstance(each, str) for each in answer.values())
    if not is_whole or not ("error" in answer or {"path", "address"} <= answer.keys()):
        raise ValueError("it is no hub of this version")
    return dict(answer)


if __name__ == "__main__":
    sys.exit(main())
