"""Two networks as a site has them: one for servers, and one for nodes behind NAT, which nobody reaches from outside."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

SERVERS, NODES = "192.0.2", "10.1.1"
SERVER, NODE = f"{SERVERS}.1", f"{NODES}.2"
ROUTER_OUTSIDE, _ROUTER_INSIDE = f"{SERVERS}.254", f"{NODES}.254"

_MASQUERADE = """
add table ip nat
add chain ip nat outgoing { type nat hook postrouting priority 100; }
add rule ip nat outgoing oifname "outside" masquerade
"""


@dataclass(frozen=True)
class Networks:
    """Files of network namespaces. What is in `servers` has the address SERVER, what is in `nodes` NODE."""

    servers: str
    nodes: str


@contextlib.contextmanager
def networks() -> Iterator[Networks]:
    """Both, with a router between them; all gone when the block is left."""
    with contextlib.ExitStack() as stack:
        router, servers, nodes = (stack.enter_context(_namespace()) for _ in range(3))
        for outside, inside, pid in (("outside", ROUTER_OUTSIDE, servers), ("inside", _ROUTER_INSIDE, nodes)):
            _run(router, "ip", "link", "add", outside, "type", "veth", "peer", "name", "uplink", "netns", str(pid))
            _up(router, outside, inside)
        _up(servers, "uplink", SERVER)
        _up(nodes, "uplink", NODE)
        _run(nodes, "ip", "route", "add", f"{SERVERS}.0/24", "via", _ROUTER_INSIDE)
        _run(router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        _run(router, "nft", "-f", "-", input=_MASQUERADE)
        yield Networks(_file(servers), _file(nodes))


@contextlib.contextmanager
def _namespace() -> Iterator[int]:
    """A process in a network namespace of its own, which lives as long as the process, or what joins it."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


def _up(pid: int, device: str, address: str) -> None:
    _run(pid, "ip", "address", "add", f"{address}/24", "dev", device)
    _run(pid, "ip", "link", "set", device, "up")


def _run(pid: int, *command: str, input: str = "") -> None:
    subprocess.run(["nsenter", f"--net={_file(pid)}", *command], input=input.encode(), check=True)


def _file(pid: int) -> str:
    return f"/proc/{pid}/ns/net"
