"""Commands of somebody who is on another machine than the access point: by the site's relay server, and his token.

The server, and all between, is not believed. The schedd itself says where the job runs, and by which keys its access
point and its node sign (condor_q). A warrant that is not exactly of this request is none. Who he is, he proves by
condor_qedit.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from condor_joblens.cli import accesspoint
from condor_joblens.common import own_process
from condor_joblens.common.condor_commands import ask
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import door, keys, located, warrants
from condor_joblens.control.elsewhere import DOOR_NAME, MODULE, READY, RELAY_NAME
from condor_joblens.control.located import Located
from condor_joblens.control.verbs import Refused
from condor_joblens.control.warrants import BadWarrant

KNOB = "_CONDOR_JOBLENS_RELAY_SERVER"
"""How a knob is set in the environment: this one counts on an access point, too."""

PROOF = "JobLensProof"

OUR_FOLDER = Path(__file__).resolve().parents[2]
"""Where this package is. python -m takes modules from the folder in which it is started, and his may have others'."""

TOKEN = "~/.joblens/relay.token"
"""Where his token is, unless JOBLENS_RELAY_SERVER_TOKEN_FILE says otherwise."""

_relays: dict[tuple[Server, str], _Relay] = {}
_starting = threading.Lock()


@dataclass(frozen=True)
class Server:
    """The site's relay server."""

    url: str
    token_file: str  # empty: TOKEN
    ca_file: str


class _Relay:
    """A process with the two sockets of an access point; it ends with this one."""

    def __init__(self, server: Server, access_point: str) -> None:
        """Starts it, and waits until it is connected. Raises JobLensError."""
        self._folder = tempfile.TemporaryDirectory(prefix="joblens-")
        token_file = server.token_file or os.path.expanduser(TOKEN)
        program = own_process.isolated_alike(MODULE, self._folder.name, server.url, token_file, server.ca_file)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*program, access_point], cwd=OUR_FOLDER, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
        )
        atexit.register(self.close)
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline().strip() != READY:
            said = self._process.stderr.read().strip().splitlines()
            self.close()
            raise JobLensError(f"no connection to the relay server: {printable(said[-1] if said else '?', 400)}")

    @property
    def lives(self) -> bool:
        """Whether it still can carry something."""
        return self._process.poll() is None

    def path(self, name: str) -> str:
        """Of one of its sockets."""
        return os.path.join(self._folder.name, name)

    def close(self) -> None:
        """It ends, and leaves nothing."""
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._process.communicate()  # it reads that nobody is there any more
        self._folder.cleanup()


def sign(
    server: Server, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]
) -> tuple[door.Signed, str]:
    """A warrant of the job's access point, and the socket of a relay that carries it. Raises JobLensError."""
    whole = job if "." in job else f"{job}.0"
    found, key = _asked_schedd(whole)
    relay = _relay(server, _host(found))
    path = relay.path(DOOR_NAME)
    nonce = door.nonce(path, whole)
    write_proof(whole, door.proof(nonce, verb, whole, sealing_key, arguments))
    try:
        packet = door.sign(path, verb, whole, sealing_key, arguments, nonce).packet
    except JobLensError:
        _withdraw(whole)
        raise
    _check(packet, key, found, verb, sealing_key, arguments)
    return door.Signed(packet, found.job, found.slot, found.node_key), relay.path(RELAY_NAME)


def write_proof(job: str, proof: str) -> None:
    """Puts it into the job, if HTCondor lets him who asks. Raises JobLensError."""
    try:
        ask("condor_qedit", job, PROOF, f'"{proof}"')
    except JobLensError as error:
        raise JobLensError(f"that job {job} is yours can't be proved: {error}") from None


def _withdraw(job: str) -> None:
    """His request was refused, or kept back. Whoever keeps it back can't have it signed when he has given up."""
    with contextlib.suppress(JobLensError):
        ask("condor_qedit", job, PROOF, '""')


def _asked_schedd(job: str) -> tuple[Located, bytes]:
    """Where the job runs, and its access point's public key, by the schedd's own word. Raises JobLensError."""
    ads = accesspoint.read_ads("condor_q", "-allusers", job, attributes=(*located.ATTRIBUTES, "JobLensKey"))
    if len(ads) != 1:
        known = f"condor_q knows {len(ads) or 'no'} jobs {job}: which schedd it asks, SCHEDD_HOST says"
        raise JobLensError(known if ads else f"{known}; {located.ENDED}")
    try:
        found = located.located(ads[0])
    except Refused as refused:
        raise JobLensError(str(refused)) from None
    key = keys.key_in(ads[0].get("JobLensKey"))
    if not key:
        raise JobLensError("the job's access point has no key, or had none when the job was submitted")
    return found, key


def _host(found: Located) -> str:
    """The access point, as its relay is named: the host of its schedd, or the schedd's name if that has none."""
    name = found.job.partition("#")[0]
    return name.rpartition("@")[2] or name


def _check(
    packet: bytes, key: bytes, found: Located, verb: str, sealing_key: bytes, arguments: Mapping[str, bytes]
) -> None:
    """Raises JobLensError for a warrant that the job's access point has not made of this very request."""
    try:
        warrant = warrants.verify(packet, key)
    except BadWarrant as bad:
        raise JobLensError(f"what has come instead of a warrant is not believed: {bad}") from None
    wanted = found.user, found.run, found.slot, verb, dict(arguments), sealing_key
    if wanted != (
        warrant.user, warrant.run, warrant.node, warrant.verb, dict(warrant.arguments), warrant.sealing_key
    ):  # fmt: skip
        raise JobLensError("the warrant that has come is of another request, or the job has moved: ask again")


def _relay(server: Server, access_point: str) -> _Relay:
    """The one of this process. Raises JobLensError."""
    with _starting:
        relay = _relays.get((server, access_point))
        if relay is None or not relay.lives:
            if relay is not None:
                relay.close()
            relay = _relays[server, access_point] = _Relay(server, access_point)
        return relay
