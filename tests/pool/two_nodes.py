"""A site of two machines: what a command from an access point on a job behind NAT takes its way through.

One pool has the access point and the relay server, another one is the node. The node can reach them, and nobody can
reach the node.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nat
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import CHECKOUT, SCRIPTS, Pool, started

from condor_joblens.control.keys import public_half, text_of

HUB = "/opt/joblens/bin/joblens-hub"
EXAMPLE = CHECKOUT / "condor_config.d/60-joblens-relay.conf.example"
RELAY_CONFIG, DOOR_CONFIG = "/etc/condor/config.d/60-joblens-relay.conf", "/etc/condor/config.d/60-joblens-door.conf"
PORT = 8443
HOSTILE = "/opt/joblens/bin/python -I /usr/src/condor_joblens/tests/pool/hostile_relay.py"
"""A relay server that does what a test wants; HUB is the one that a site has."""

SERVER_ARGUMENTS = (
    f"relay --listen {nat.SERVER}:{PORT} --tokens /tmp/tokens "
    "--entries /tmp/entries --roles /tmp/roles --control /tmp/control.sock "
    "--certificate /tmp/relay.pem --key /tmp/relay.key "
    ">>/tmp/hub.log 2>&1 </dev/null"
)
PROCESSES = {
    "server": ("access point", "relay --listen"),
    "joblens-relay there": ("access point", "condor_joblens.relay$"),
    "joblens-relay": ("node", "condor_joblens.relay$"),
    "joblens-door": ("access point", "condor_joblens.accesspoint.door$"),
    "joblensd": ("node", "condor_joblens.agent"),
}
"""Where each runs, and what its command line has."""

SITE = f"""
CONDOR_HOST = {nat.SERVER}
COLLECTOR_HOST = {nat.SERVER}:9618
UID_DOMAIN = example.org
TRUST_UID_DOMAIN = true
ALLOW_DAEMON = condor@*, condor_pool@*
ALLOW_ADVERTISE_STARTD = $(ALLOW_DAEMON)
STARTER_INITIAL_UPDATE_INTERVAL = 2
STARTER_UPDATE_INTERVAL = 3
SHADOW_QUEUE_UPDATE_INTERVAL = 2
JOBLENS_AD_PERIOD = 2
"""
ONLINE = b"of the relay server, for a test."
"""The key by which it signs entries."""

CONTROL = "/tmp/control.sock"
ROLES = "operator bob\n"

OF_NODES = f"""
JOBLENS_MAX_LEVEL = io
JOBLENS_REMOTE_COMMANDS = true
JOBLENS_HUB_KEY = {text_of(public_half(Ed25519PrivateKey.from_private_bytes(ONLINE)))}
JOBLENS_HUB_MAY = levels
"""
"""They are in the example or in admin.md too, but joblensd takes them when it starts."""

ACCESS_POINT = f"""
NETWORK_INTERFACE = {nat.SERVER}
SCHEDD_NAME = submit@$(HOSTNAME)
{OF_NODES}
"""
"""It is an execute node too. A name with @ is found without a DNS, which there is none of."""

NODE = f"""
NETWORK_INTERFACE = {nat.NODE}
DAEMON_LIST = MASTER STARTD
CCB_ADDRESS = $(COLLECTOR_HOST)
PRIVATE_NETWORK_NAME = behind-nat
{OF_NODES}
"""

# it writes a line a second, and one for each signal
COUNTS = """#!/bin/sh
trap 'echo signalled' USR1
n=0
while :; do n=$((n + 1)); echo "line $n"; sleep 1; done
"""


READ_BYTES = 3_000_000
READS = f"""#!/bin/sh
head -c {READ_BYTES} /dev/zero >/dev/null
exec sleep 600
"""
"""What it reads first can be counted by level io only."""


AT_ACCESS_POINT = """
JOBLENS_RELAY_SOCKET = /run/joblens-relay.sock
JOBLENS_DOOR_AFAR_SOCKET = /run/joblens-door-afar.sock
"""

HELD_BACK = "from now on one a second"
"""What joblens-door says to who has asked too often: accesspoint/door_server.py."""

TOO_SLOW = "joblens-door has ended the connection"
"""The door waits for a second for a whole question, and has done nothing then."""


@dataclass
class Site:
    """The two pools, and a job of alice's that runs on the node."""

    access_point: Pool
    node: Pool
    program: str = HOSTILE
    """The relay server's."""

    cluster: int = 0

    def joblens(self, *arguments: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
        """What `joblens` says to a user of the access point, who asks again if he was too quick: one has 30 at once."""

        def done() -> subprocess.CompletedProcess[str] | None:
            said = self.access_point.run("joblens", *arguments, user=user, check=False)
            return None if any(words in said.stderr for words in (HELD_BACK, TOO_SLOW)) else said

        return self.access_point.until(done, f"the door to let {user} ask")  # type: ignore[return-value]

    def asked(self, verb: str, *arguments: str) -> str:
        """What it says to alice about her job, which it does."""
        done = self.joblens(verb, f"{self.cluster}.0", *arguments)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs}"
        return done.stdout

    def refused(self, verb: str, *arguments: str, user: str = "alice") -> str:
        """Why it does not."""
        done = self.joblens(verb, f"{self.cluster}.0", *arguments, user=user)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def control(self, *arguments: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """What `joblens control` says on the relay server's machine."""
        return self.access_point.run("joblens", "control", "--socket", CONTROL, *arguments, user=user, check=False)

    def entry(self, *arguments: str, user: str = "root", lasts: str = "1h") -> str:
        """The name of a new entry, which the node has taken."""
        done = self.control("add", *arguments, "--for", lasts, "--reason", "slow reads", user=user)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs}"
        name = done.stdout.split()[1]
        self.node.until(lambda: f"entry {name} for " in self.node.log("JobLensdLog"), "the entry on the node")
        return name

    def signals(self) -> int:
        """How many the job has written down; 0 if it can't be asked just now."""
        return self.joblens("tail", f"{self.cluster}.0", "-n", "100000").stdout.count("signalled")

    def until_told(self, job: str) -> str:
        """What its user is told of its level, as soon as it can be asked."""
        found: list[str] = []

        def told() -> bool:
            answer = self.joblens("level", job)
            found[:] = [answer.stdout]
            return answer.returncode == 0

        self.access_point.until(told, f"the level of {job}")
        return found[0]

    @contextlib.contextmanager
    def server(self, orders: str) -> Iterator[None]:
        """What the relay server does with all that it carries in here."""
        path = self.access_point.root / "tmp/orders"
        path.write_text(orders)
        try:
            yield
        finally:
            path.unlink()

    def start_server(self) -> None:
        """The relay server, as a user that owns nothing."""
        ap, before = self.access_point, self.hub_log.count("listens at")
        ap.shell(f"setsid setpriv --reuid nobody --regid nogroup --clear-groups {self.program} {SERVER_ARGUMENTS} &")
        ap.until(lambda: self.hub_log.count("listens at") > before, "the relay server")

    def process(self, name: str) -> tuple[Pool, str]:
        """Where a process of PROCESSES runs, and its id."""
        where, pattern = PROCESSES[name]
        pool = self.node if where == "node" else self.access_point
        return pool, pool.run("pgrep", "-f", pattern).stdout.split()[0]

    def kill(self, name: str) -> None:
        """It is killed, and gone."""
        pool, pid = self.process(name)
        pool.run("kill", "-KILL", pid)
        pool.until(lambda: not (pool.root / "proc" / pid / "exe").exists(), f"the end of {name}")

    @contextlib.contextmanager
    def standing_still(self, *names: str) -> Iterator[None]:
        """These processes do nothing in here; they may end meanwhile."""
        stopped = [self.process(name) for name in names]
        for pool, pid in stopped:
            pool.run("kill", "-STOP", pid)
        try:
            yield
        finally:
            for pool, pid in stopped:
                pool.run("kill", "-CONT", pid, check=False)

    @contextlib.contextmanager
    def begun(self, verb: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command of alice's about her job, which goes on; it is ended after two minutes."""
        job = ("joblens", verb, f"{self.cluster}.0", *arguments)
        command = SCRIPTS / "run", "--pool", self.access_point.name, "--as", "alice", "timeout", "120", *job
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()

    def leave_room_for(self, commands: int) -> None:
        """Until the door lets alice ask for so many at once: its pace gives her one a second again."""
        time.sleep(commands + 1)

    def carried(self) -> int:
        """Commands that the server has carried to the node."""
        return self.hub_log.count(f" to {self.host}: carried")

    def waiting_at_the_door(self) -> int:
        """Connections that joblens-door has not accepted yet."""
        listening = [line.split() for line in self.access_point.shell("ss -Hlx").splitlines()]
        return sum(int(words[2]) for words in listening if any("joblens-door.sock" in word for word in words))

    def until_answered(self) -> None:
        """Until commands from afar work again."""
        self.access_point.until(lambda: self.joblens("ps", f"{self.cluster}.0").returncode == 0, "an answer from afar")

    @property
    def hub_log(self) -> str:
        """The relay server's."""
        path = self.access_point.root / "tmp/hub.log"
        return path.read_text() if path.exists() else ""

    @property
    def logs(self) -> str:
        """What one wants to see if something fails."""
        ends = [self.access_point.log(name)[-2000:] for name in ("JobLensDoorLog", "JobLensRelayLog")]
        ends += [self.node.log(name)[-2000:] for name in ("JobLensRelayLog", "JobLensdLog")]
        return "\n\n".join([*ends, self.hub_log[-2000:]])

    @cached_property
    def host(self) -> str:
        """The node, as HTCondor calls it."""
        return self.node.run("hostname").stdout.strip()


def conf(folder: Path, text: str) -> Path:
    """A folder for tests/pool/start, with this besides the usual."""
    folder.mkdir()
    for path in (SCRIPTS / "conf/fast").glob("*.conf"):
        (folder / path.name).write_text(path.read_text())
    (folder / "40-site.conf").write_text(SITE + text)
    return folder


@contextlib.contextmanager
def two_pools(name: str, suite: str, folder: Path, program: str, knobs: str) -> Iterator[Site]:
    """Both, with the product installed."""
    with contextlib.ExitStack() as stack:
        networks = stack.enter_context(nat.networks())
        ours = conf(folder / "access-point", ACCESS_POINT + knobs)
        access_point = stack.enter_context(started(f"{name}-ap", suite, ours, install=False, network=networks.servers))
        theirs = conf(folder / "node", NODE + knobs)
        (theirs / "tokens.d").mkdir()
        token = access_point.run("condor_token_create", "-identity", "condor@example.org").stdout
        (theirs / "tokens.d/pool").write_text(token)
        with ThreadPoolExecutor() as threads:
            installed = threads.submit(install, access_point)
            node = stack.enter_context(started(f"{name}-node", suite, theirs, install=False, network=networks.nodes))
            install(node)
            installed.result()
        yield Site(access_point, node, program)


def install(pool: Pool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SUITE"}
    subprocess.run([SCRIPTS / "install"], env={**environment, "POOL": pool.name}, check=True)


def certificate(pool: Pool) -> str:
    """A certificate of the relay server and its key, in the pool's /tmp; the certificate's text."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=relay", "-addext", f"subjectAltName=IP:{nat.SERVER}"]
    files = ["-keyout", pool.root / "tmp/relay.key", "-out", pool.root / "tmp/relay.pem"]
    subprocess.run([*new, *names, *files], check=True, capture_output=True)
    (pool.root / "tmp/relay.key").chmod(0o644)  # the server is nobody's, and nobody else is here
    return (pool.root / "tmp/relay.pem").read_text()


def relay(site: Site, pool: Pool, role: str, authority: str, more: str = "") -> None:
    """A machine's relay: the example as an administrator takes it, and a token of its own."""
    name = pool.run("hostname").stdout.strip()
    token, line = (said.split(": ")[1].strip() for said in pool.run(HUB, "token", role, name).stdout.splitlines())
    with (site.access_point.root / "tmp/tokens").open("a") as tokens:
        tokens.write(line + "\n")
    etc = pool.root / "etc/joblens"
    (etc / "relay.token").touch(mode=0o600)
    (etc / "relay.token").write_text(token + "\n")
    (etc / "relay.pem").write_text(authority)
    text = EXAMPLE.read_text().replace("wss://relay.example.org/", f"wss://{nat.SERVER}:{PORT}/")
    text += f"JOBLENS_RELAY_CA_FILE = /etc/joblens/relay.pem\n{more}"
    (pool.root / RELAY_CONFIG.lstrip("/")).write_text(text)


@contextlib.contextmanager
def whole_site(
    name: str, suite: str, folder: Path, program: str = HOSTILE, roles: str = ROLES, knobs: str = "", more: str = ""
) -> Iterator[Site]:
    """Both pools with relay server, relays, door, and a job of alice's that answers.

    `knobs` are for both machines, `more` is for the job's submit file.
    """
    with two_pools(name, suite, folder, program, knobs) as site:
        ap, node = site.access_point, site.node
        authority = certificate(ap)
        relay(site, node, "node", authority)
        relay(site, ap, "both", authority, AT_ACCESS_POINT)
        entries = ap.root / "tmp/entries"
        entries.mkdir(mode=0o700)
        (entries / "online_key").write_bytes(ONLINE)
        (entries / "online_key").chmod(0o600)
        (ap.root / "tmp/roles").write_text(roles)
        ap.shell("chown -R nobody /tmp/entries")
        site.start_server()
        ap.shell(f"$(condor_config_val LIBEXEC)/joblens-door --config >{DOOR_CONFIG}")
        for pool in (ap, node):
            pool.run("condor_reconfig")
        ap.shell(f"cat >/home/alice/reads <<'END'\n{READS}END\nchmod 755 /home/alice/reads", user="alice")
        ap.shell(f"cat >/home/alice/counts <<'END'\n{COUNTS}END\nchmod 755 /home/alice/counts", user="alice")
        ap.until(lambda: "vouches for users of" in ap.log("JobLensDoorLog"), "joblens-door")
        ap.until(lambda: f"node {site.host} is here" in site.hub_log, "the node's relay")
        ap.until(lambda: "both " in site.hub_log, "the access point's relay")
        wanted = f'requirements = Machine == "{site.host}"\nshould_transfer_files = YES\n'
        site.cluster = ap.submit(f"executable = /home/alice/counts\n{wanted}{more}queue")
        ap.wait_running(site.cluster)
        ap.until(lambda: "NodeKey" in ap.usage(site.cluster), "the node's key")
        ap.until(lambda: site.joblens("ps", f"{site.cluster}.0").returncode == 0, "an answer from afar")
        yield site
