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
    parser.add_argument("--address", metavar="URL", default="http://127.0.0.1:8767", help="of the pages (%(default)s)")
    options = parser.parse_args(arguments)
    connection = http.client.HTTPConnection("localhost", timeout=20)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        connection.sock.connect(options.socket)
        connection.request("GET", "/login")
        answer = json.loads(connection.getresponse().read(65536))
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"joblens-hub: {options.socket} does not answer ({error}): is the hub running?", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if "path" not in answer:
        print(f"joblens-hub: {answer.get('error')}: the administrator names people in the hub's file", file=sys.stderr)
        return 1
    print(options.address.rstrip("/") + answer["path"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
