"""`joblens doctor`: each check against a copy of a machine's files, in which one thing is wrong."""

import base64
import contextlib
import dataclasses
import json
import os
import socket
import tarfile
import threading
import time

import pytest
from cli_samples import publish, row

from condor_joblens import __version__
from condor_joblens.cli import bug_report, doctor, main
from condor_joblens.cli.checks import daemons, htcondor, kernel, programs, sinks
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, State, fail, ok, warn
from condor_joblens.cli.terminal import Style
from condor_joblens.common import knob_digests
from condor_joblens.common.errors import JobLensError

MACROS = {
    "DAEMON_LIST": "MASTER, STARTD, SCHEDD, JOBLENSD, JOBLENS_EXPORT",
    "JOBLENSD": "/usr/libexec/condor/joblensd",
    "LIBEXEC": "/usr/libexec/condor",
    "USER_JOB_WRAPPER": "/usr/libexec/condor/joblens_wrapper",
    "STARTD_CRON_JOBLIST": "GPUS JOBLENS",
    "STARTD_CRON_JOBLENS_EXECUTABLE": "/usr/libexec/condor/joblens_publish",
    "STARTD_CRON_JOBLENS_MODE": "WaitForExit",
    "STARTER.STARTD_CRON_JOBLENS_METRICS": "SUM:JobLens",
    "STARTER_UPDATE_INTERVAL": "10",
    "STARTER_INITIAL_UPDATE_INTERVAL": "8",
    "SHADOW_QUEUE_UPDATE_INTERVAL": "10",
    "IMMUTABLE_JOB_ATTRS": "Owner JobLensLevel",
    "STARTD_JOB_ATTRS": "ImageSize, CondorScratchDir NumShadowStarts",
    "JOBLENS_MAX_LEVEL": "profile",
}

FILES = {
    "/proc/sys/kernel/osrelease": "6.12.48-amd64\n",
    "/proc/sys/kernel/unprivileged_bpf_disabled": "2\n",
    "/proc/self/status": "Name:\tx\nCapBnd:\t000001ffffffffff\n",
    "/proc/mounts": "bpf /sys/fs/bpf bpf rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "/proc/pressure/cpu": "some avg10=0.00\n",
    "/sys/kernel/btf/vmlinux": "",
    "/sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
    "/sys/fs/cgroup/cgroup.procs": "",
    "/sys/fs/cgroup/system.slice/cpu.pressure": "",
    "/sys/fs/cgroup/cgroup.controllers": "cpu io memory pids\n",
    "/sys/fs/bpf/joblens/0123456789abcdef/basic/links/on_fork": "",
    "/sys/fs/bpf/joblens/0123456789abcdef/basic/links/on_exit": "",
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\njoblens:x:990:990::/:/usr/sbin/nologin\n"
    "joblens-policy:x:989:989::/:\njoblens-files:x:988:988::/:\njoblens-agent:x:987:987::/:\n",
    "/etc/group": "root:x:0:\njoblens:x:990:condor\n",
    "/usr/share/joblens/policies/10-default.lua": 'rule "as asked" { level = "requested" }\n',
    "/commands/condor_version": "$CondorVersion: 25.14.1 2026-10-16 $\n",
    "/commands/condor_q": "Total for all users: 5 jobs; 0 completed, 0 removed, 2 idle, 3 running, 0 held\n",
}

PROGRAMS = ["joblensd", "joblens_wrapper", "joblens_activate", "joblens_publish"]


class Machine:
    """A copy of a healthy machine's files, to be spoilt."""

    def __init__(self, root):
        self.root = root
        self.macros = dict(MACROS)
        for path, text in FILES.items():
            self.write(path, text)
        for name in PROGRAMS:
            self.write(f"/usr/libexec/condor/{name}", "#!/bin/sh\n", 0o755)
        for name in ("sitecustomize.py", "joblens_python.so"):
            for folder in ("joblens_python", "joblens_python_calls"):
                self.write(f"/usr/libexec/condor/{folder}/{name}", "", 0o644)
        self.write("/usr/libexec/condor/joblens_python_calls/joblens_calls.so", "", 0o644)
        (root / "etc/joblens/policies.d").mkdir(parents=True)
        for pid, module in ((4242, "export"), (4243, "publish.slotads"), (os.getpid(), "agent")):
            self.write(f"/proc/{pid}/cmdline", f"python\0-I\0-m\0condor_joblens.{module}\0")
        self.run_dir = root / "run/joblens"
        self.run_dir.mkdir(parents=True)
        self.attached()
        self.write("/run/joblens/startd", "")
        self.writer = publish(self.run_dir, "rows", row(), time=time.time())
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.getcwd()
        os.chdir(self.run_dir)  # a socket's path has 108 bytes at most
        self.server.bind("activate.sock")
        os.chdir(here)
        (self.run_dir / "activate.sock").chmod(0o666)
        self.server.listen()
        self.hangs = False
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        """As joblensd does, to whatever it is asked."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                if not self.hangs:
                    connection.recv(4096)
                    connection.send(b"joblens/1\0refused\0reason=no such verb\0")
                    connection.close()

    def write(self, path, text, mode=0o644):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def remove(self, path):
        (self.root / path.lstrip("/")).unlink()

    def deaf(self):
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)

    def no_socket(self):
        (self.run_dir / "activate.sock").unlink()

    def attached(self, **facts):
        """What joblensd says of its programs."""
        programs = [{"Name": "jl_exit", "Level": "basic"}, {"Name": "jl_switch", "Level": "io"}]
        said = {"Source": "bpf", "Note": "", "Programs": programs, "Missing": {}, "Version": __version__,
                "Knobs": knob_digests.digests(MACROS), **facts}  # fmt: skip
        (self.run_dir / "attached").write_text(json.dumps(said))

    def mode(self, path, mode):
        (self.root / path.lstrip("/")).chmod(mode)

    def node(self):
        dump = "".join(
            f"{name} = {value}\n # at: /etc/x.conf, line 1\n # raw: {value}\n" for name, value in self.macros.items()
        )
        self.write("/commands/condor_config_val", f"# Configuration from machine: x\n\n{dump}")
        return CheckedNode(str(self.root), str(self.run_dir), uid=0)

    def findings(self):
        """The worst finding of each check."""
        worst = {}
        order = [State.OK, State.WARN, State.FAIL]
        for what, finding in doctor.examine(self.node()):
            if what not in worst or order.index(finding.state) > order.index(worst[what].state):
                worst[what] = finding
        return worst


@pytest.fixture
def machine(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(kernel, "_OBJECTS", tmp_path_factory.mktemp("p") / "tracer" / "objects")
    objects = kernel._OBJECTS
    objects.mkdir(parents=True)
    (objects / "process.bpf.o").touch()
    for module in ("tracer/_bpf", "shm/_shm", "sample/_files"):
        file = objects.parent.parent / f"{module}.abi3.so"
        file.parent.mkdir(exist_ok=True)
        file.touch()
    machine = Machine(tmp_path_factory.mktemp("m"))
    yield machine
    machine.deaf()
    machine.server.close()


def test_a_healthy_machine_is_ok_in_every_line(machine):
    bad = {what: finding for what, finding in machine.findings().items() if finding.state is not State.OK}
    assert bad == {}
    checked = {what for what, _ in doctor.checks(machine.node())}
    assert checked == {
        what
        for group in (
            doctor.ALWAYS,
            doctor.CONFIGURED,
            doctor.KERNEL,
            doctor.EXECUTE_NODE,
            doctor.ACCESS_POINT,
            doctor.EITHER,
        )
        for what, _ in group
    }


def test_joblensd_that_has_just_been_started_is_waited_for(machine, monkeypatch):
    hidden = machine.run_dir / "activate.sock", machine.run_dir / "hidden"
    hidden[0].rename(hidden[1])

    def runs(node, module):
        hidden[1].rename(hidden[0])  # it is ready as soon as it was looked for
        return os.getpid()

    monkeypatch.setattr(CheckedNode, "runs", runs)
    monkeypatch.setattr(CheckedNode, "is_module", lambda *_: True)
    (found,) = daemons.joblensd(CheckedNode("/", str(machine.run_dir), uid=0))
    as_whom = ", which has to stay root on this node: JobLensdLog says why" if os.getuid() == 0 else ", and not as root"
    assert (found.state, found.text) == (State.OK, f"runs as process {os.getpid()}{as_whom}")


def test_the_last_line_counts():
    found = [("a", ok("")), ("b", warn("", "")), ("c", fail("", "")), ("d", fail("", ""))]
    assert doctor.summary(found, Style()) == "1 ok, 1 warning, 2 failures"


RELAY_LOG = "/var/log/condor/JobLensRelayLog"


def from_afar(machine, **macros):
    """A machine that takes commands from afar, and lets its users ask."""
    machine.macros.update(
        DAEMON_LIST=f"{MACROS['DAEMON_LIST']}, JOBLENS_RELAY, JOBLENS_DOOR",
        JOBLENS_RELAY_URL="wss://relay.example.org/",
        JOBLENS_RELAY_SOCKET="/run/joblens-relay.sock",
        JOBLENS_RELAY_LOG=RELAY_LOG,
        JOBLENS_REMOTE_COMMANDS="true",
        STARTD_JOB_ATTRS=f"{MACROS['STARTD_JOB_ATTRS']} JobLensKey",
        JOB_TRANSFORM_NAMES="JobLensKey",
        IMMUTABLE_JOB_ATTRS=f"{MACROS['IMMUTABLE_JOB_ATTRS']} JobLensKey",
        **macros,
    )
    machine.write("/etc/joblens/relay.token", "secret\n", 0o600)
    machine.write("/run/joblens-door.sock", "")
    said = "no connection to wss://relay.example.org/ (x): tried again\nconnected to wss://relay.example.org/\n"
    machine.write(RELAY_LOG, said)
    for pid, module in ((4244, "relay"), (4245, "accesspoint.door")):
        machine.write(f"/proc/{pid}/cmdline", f"python\0-I\0-m\0condor_joblens.{module}\0")


def test_a_machine_with_commands_from_afar_is_ok_in_every_line(machine):
    from_afar(machine)
    found = machine.findings()
    assert {what for what, finding in found.items() if finding.state is not State.OK} <= {"reconfigured"}
    connected = "process 4244, connected to wss://relay.example.org/; its token has to be one of the role `both`"
    assert found["relay"].text == f"runs as {connected}"
    assert found["door"].text == "runs as process 4245, and users ask it at /run/joblens-door.sock"
    machine.macros["DAEMON_LIST"] = "MASTER, SCHEDD, JOBLENS_RELAY, JOBLENS_DOOR"
    machine.macros["JOBLENS_REMOTE_COMMANDS"] = "false"
    found = machine.findings()
    assert found["relay"].text == "runs as process 4244, connected to wss://relay.example.org/"
    assert found["door"].state is State.OK


EVENT_LOG = "/var/log/condor/EventLog"


def follows_the_queue(machine, **macros):
    """An access point whose joblens-eventlog has told all."""
    machine.macros.update(
        DAEMON_LIST="MASTER, SCHEDD, JOBLENS_EVENTLOG",
        EVENT_LOG=EVENT_LOG,
        EVENT_LOG_FORMAT_OPTIONS="JSON, UTC, SUB_SECOND",
        EVENT_LOG_JOB_AD_INFORMATION_ATTRS="GlobalJobId, Owner, User, AccountingGroup, Cmd",
        JOBLENS_SINK_HUB_URL="https://hub.example.org:8766",
        JOBLENS_SINK_HUB_TOKEN_FILE="/etc/joblens/hub.token",
        **macros,
    )
    machine.write("/etc/joblens/hub.token", "secret\n", 0o640)
    machine.write("/proc/4246/cmdline", "python\0-I\0-m\0condor_joblens.eventlog\0")
    machine.write(EVENT_LOG, "x" * 5000)
    told_up_to(machine, 5000)


def told_up_to(machine, offset):
    """The place up to which the hub has the log."""
    inode = (machine.root / EVENT_LOG.lstrip("/")).stat().st_ino
    said = json.dumps({"inode": inode, "offset": offset, "mark": "", "sequence": 1})
    machine.write("/var/lib/joblens/eventlog/cursor", said)


def test_an_access_point_that_follows_its_queue_is_ok(machine):
    assert machine.findings()["event log"].text == "not in DAEMON_LIST, so not wanted"
    follows_the_queue(machine)
    assert machine.findings()["event log"] == ok(f"runs as process 4246, and the hub has all of {EVENT_LOG}")


KEY = f"ed25519:{base64.b64encode(bytes(32)).decode()}"


@pytest.mark.parametrize(
    ("macros", "said"),
    [
        ({}, "JOBLENS_HUB_KEY is not set, so not wanted"),
        ({"JOBLENS_HUB_KEY": KEY}, "the relay server may ask for numbers of jobs, and take no part in levels "
                                   "(JOBLENS_HUB_MAY = numbers)"),
        ({"JOBLENS_HUB_KEY": KEY, "JOBLENS_HUB_MAY": "none"},
         "the relay server may say nothing (JOBLENS_HUB_MAY = none)"),
        ({"JOBLENS_HUB_KEY": KEY, "JOBLENS_HUB_MAY": "levels"},
         "entries of the relay server hold; they raise jobs to io at most"),
    ],
)  # fmt: skip
def test_what_the_relay_server_may_say_by_its_own_key(machine, macros, said):
    from_afar(machine, **macros)
    machine.macros["JOBLENS_REMOTE_COMMANDS"] = "false" if "JOBLENS_HUB_KEY" in macros else "true"
    found = machine.findings()
    assert (found["entries"].text, found["entries"].state) == (said, State.OK)
    assert found["relay"].state is State.OK, "entries come by the relay, whether commands do or not"


STAFF_KEYS = "/etc/joblens/staff.keys"


def staff(machine, line=f"carol {KEY} ps,log", mode=0o644):
    """A machine whose file of the staff's keys has this line."""
    from_afar(machine)
    machine.write(STAFF_KEYS, f"# whose\n{line}\n", mode)


def test_whose_keys_count_is_said(machine):
    assert machine.findings()["staff keys"].text == f"{STAFF_KEYS} is not there: nobody of the staff has a key here"
    staff(machine)
    found = machine.findings()["staff keys"]
    assert (found.text, found.state) == (f"{STAFF_KEYS} has keys of: carol", State.OK)


FAULTS = {
    "a wrong line among the staff's keys": (
        lambda m: staff(m, f"carol {KEY} reboot"),
        "staff keys", "FAIL", "no key of the staff counts: line 2 of the staff's keys: there is no verb reboot",
    ),
    "staff's keys that others can write": (
        lambda m: staff(m, mode=0o664),
        "staff keys", "FAIL", "may be written by others than its owner",
    ),
    "staff's keys that joblensd can't read": (
        lambda m: staff(m, mode=0o600),
        "staff keys", "FAIL", "can't be read by joblensd",
    ),
    "staff's keys behind a link": (
        lambda m: (staff(m), m.remove(STAFF_KEYS), (m.root / STAFF_KEYS[1:]).symlink_to("elsewhere"),
                   m.write("/etc/joblens/elsewhere", "")),
        "staff keys", "FAIL", "is no file of root's",
    ),
    "too many of the staff's keys": (
        lambda m: staff(m, "#" * 66_000),
        "staff keys", "FAIL", "has more than 65536 bytes",
    ),
    "staff's keys where no command comes": (
        lambda m: (staff(m), m.macros.update(JOBLENS_REMOTE_COMMANDS="false")),
        "staff keys", "warn", "none of them is good for anything",
    ),
    "entries without a key": (
        lambda m: m.macros.update(JOBLENS_HUB_MAY="levels"),
        "entries", "warn", "JOBLENS_HUB_KEY is not set: no entry is taken",
    ),
    "a key that is none": (
        lambda m: from_afar(m) or m.macros.update(JOBLENS_HUB_KEY="ed25519:abc"),
        "entries", "FAIL", "JOBLENS_HUB_KEY is no key",
    ),
    "nobody brings entries": (
        lambda m: m.macros.update(JOBLENS_HUB_KEY=KEY, JOBLENS_HUB_MAY="none"),
        "entries", "warn", "nobody brings entries",
    ),
    "entries above what the node allows": (
        lambda m: from_afar(m) or m.macros.update(
            JOBLENS_MAX_LEVEL="io", JOBLENS_HUB_KEY=KEY, JOBLENS_HUB_MAY="levels", JOBLENS_HUB_MAX_LEVEL="profile"
        ),
        "entries", "warn", "entries raise to io at most",
    ),
    "a word that the server may not have": (
        lambda m: m.macros.update(JOBLENS_HUB_MAY="level"),
        "knobs", "warn", "JOBLENS_HUB_MAY",
    ),
    "nobody brings commands": (
        lambda m: m.macros.update(JOBLENS_REMOTE_COMMANDS="true"),
        "relay", "warn", "nobody brings a command",
    ),
    "a relay without a server": (
        lambda m: (from_afar(m), m.macros.pop("JOBLENS_RELAY_URL")),
        "relay", "FAIL", "JOBLENS_RELAY_URL is not set",
    ),
    "a relay without a token": (
        lambda m: (from_afar(m), m.remove("/etc/joblens/relay.token")),
        "relay", "FAIL", "/etc/joblens/relay.token is not there",
    ),
    "a certificate without its key": (
        lambda m: from_afar(m) or m.macros.update(
            JOBLENS_RELAY_CERTIFICATE_FILE="/x.pem", JOBLENS_RELAY_KEY_FILE="/x.key"
        ),
        "relay", "FAIL", "put the key of this machine's certificate there",
    ),
    "a token for everybody": (
        lambda m: (from_afar(m), m.mode("/etc/joblens/relay.token", 0o644)),
        "relay", "FAIL", "is not its owner's alone",
    ),
    "a relay that does not run": (
        lambda m: (from_afar(m), m.remove("/proc/4244/cmdline")),
        "relay", "warn", "joblens-relay does not run",
    ),
    "a relay without a connection": (
        lambda m: from_afar(m) or m.write(RELAY_LOG, "connected to x\nno connection to x (\x1b)"),
        "relay", "warn", "no connection to x (\\x1b)",
    ),
    "a relay without its users' socket": (
        lambda m: (from_afar(m), m.macros.pop("JOBLENS_RELAY_SOCKET")),
        "relay", "warn", "its users can't ask from here",
    ),
    "a relay, and joblensd does nothing from afar": (
        lambda m: from_afar(m) or m.macros.update(JOBLENS_REMOTE_COMMANDS="false"),
        "relay", "warn", "joblensd does nothing from afar",
    ),
    "no key for joblensd": (
        lambda m: from_afar(m) or m.macros.update(STARTD_JOB_ATTRS="NumShadowStarts CondorScratchDir"),
        "relay", "FAIL", "JobLensKey is not in STARTD_JOB_ATTRS",
    ),
    "nobody brings requests to the door": (
        lambda m: from_afar(m) or m.macros.update(
            DAEMON_LIST=f"{MACROS['DAEMON_LIST']} JOBLENS_DOOR", JOBLENS_DOOR_AFAR_SOCKET="/run/joblens-door.sock"
        ),
        "door", "warn", "nobody brings requests there",
    ),
    "a door without its socket for the relay": (
        lambda m: from_afar(m) or m.macros.update(JOBLENS_DOOR_AFAR_SOCKET="/run/joblens-door-afar.sock"),
        "door", "FAIL", "users who are elsewhere can't ask",
    ),
    "nobody vouches": (
        lambda m: from_afar(m) or m.macros.update(DAEMON_LIST=f"{MACROS['DAEMON_LIST']} JOBLENS_RELAY"),
        "door", "warn", "nobody vouches for users",
    ),
    "jobs leave without the key": (
        lambda m: from_afar(m) or m.macros.pop("JOB_TRANSFORM_NAMES"),
        "door", "FAIL", "JobLensKey is not in JOB_TRANSFORM_NAMES",
    ),
    "users can change the key": (
        lambda m: from_afar(m) or m.macros.update(IMMUTABLE_JOB_ATTRS="Owner JobLensLevel"),
        "door", "warn", "users can change it",
    ),
    "a door that does not run": (
        lambda m: (from_afar(m), m.remove("/proc/4245/cmdline")),
        "door", "warn", "joblens-door does not run",
    ),
    "a door without its socket": (
        lambda m: (from_afar(m), m.remove("/run/joblens-door.sock")),
        "door", "FAIL", "/run/joblens-door.sock is not there",
    ),
    "an event log that nobody asked for": (
        lambda m: follows_the_queue(m) or m.macros.pop("EVENT_LOG"),
        "event log", "FAIL", "EVENT_LOG is not set",
    ),
    "an event log for people": (
        lambda m: follows_the_queue(m) or m.macros.update(EVENT_LOG_FORMAT_OPTIONS="UTC"),
        "event log", "FAIL", "EVENT_LOG_FORMAT_OPTIONS has no JSON",
    ),
    "an event log without owners": (
        lambda m: follows_the_queue(m) or m.macros.update(EVENT_LOG_JOB_AD_INFORMATION_ATTRS="GlobalJobId Cmd"),
        "event log", "FAIL", "EVENT_LOG_JOB_AD_INFORMATION_ATTRS lacks Owner",
    ),
    "no hub for the event log": (
        lambda m: follows_the_queue(m) or m.macros.pop("JOBLENS_SINK_HUB_URL"),
        "event log", "FAIL", "JOBLENS_SINK_HUB_URL is not set",
    ),
    "no token for the event log": (
        lambda m: (follows_the_queue(m), m.remove("/etc/joblens/hub.token")),
        "event log", "FAIL", "/etc/joblens/hub.token is not there",
    ),
    "nobody follows the event log": (
        lambda m: (follows_the_queue(m), m.remove("/proc/4246/cmdline")),
        "event log", "warn", "joblens-eventlog does not run",
    ),
    "a hub that does not take the event log": (
        lambda m: (follows_the_queue(m), told_up_to(m, 3000)),
        "event log", "warn", "the hub lacks the last 2.0 kB of the event log",
    ),
    "an event log of which nothing was told": (
        lambda m: (follows_the_queue(m), m.remove("/var/lib/joblens/eventlog/cursor")),
        "event log", "warn", "the hub lacks the last 5.0 kB of the event log",
    ),
    "old kernel": (
        lambda m: m.write("/proc/sys/kernel/osrelease", "4.18.0-553.el8"),
        "kernel", "warn", "5.9",
    ),
    "Yama": (
        lambda m: m.write("/proc/sys/kernel/yama/ptrace_scope", "1\n"),
        "looks at jobs",
        "warn",
        "kernel.yama.ptrace_scope = 1: in joblens hang and stacks, stacks end at their first function",
    ),
    "no BTF": (lambda m: m.remove("/sys/kernel/btf/vmlinux"), "BTF", "warn", "numbers come from /proc"),
    "no BTF, and wanted": (
        lambda m: (m.remove("/sys/kernel/btf/vmlinux"), m.macros.update(JOBLENS_SOURCE="bpf")),
        "BTF", "FAIL", "CONFIG_DEBUG_INFO_BTF",
    ),
    "no capability": (
        lambda m: m.write("/proc/self/status", "CapBnd:\t00000000a80425fb\n"),
        "capabilities", "warn", "CAP_BPF and CAP_PERFMON can't be had: numbers come from /proc",
    ),
    "fewer capabilities": (
        lambda m: m.write("/proc/self/status", "CapBnd:\t000000c000000040\n"),
        "capabilities", "warn", "CAP_SETUID (to start what works in jobs' folders",
    ),
    "lockdown": (
        lambda m: m.write("/sys/kernel/security/lockdown", "none integrity [confidentiality]"),
        "lockdown", "warn", "Secure Boot",
    ),
    "no memory controller": (
        lambda m: m.write("/sys/fs/cgroup/cgroup.controllers", "cpu\n"),
        "cgroups", "warn", "cgroup_enable=memory",
    ),
    "hybrid": (lambda m: m.remove("/sys/fs/cgroup/cgroup.procs"), "cgroups", "warn", "beside version 2"),
    "no PSI": (lambda m: m.remove("/proc/pressure/cpu"), "pressure", "warn", "psi=1"),
    "no PSI of cgroups": (
        lambda m: m.remove("/sys/fs/cgroup/system.slice/cpu.pressure"),
        "pressure", "warn", "not of cgroups",
    ),
    "no bpffs": (
        lambda m: m.write("/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw\n"),
        "bpffs", "warn", "mount",
    ),
    "bpffs for everybody": (lambda m: (m.root / "sys/fs/bpf").chmod(0o1777), "bpffs", "warn", "remount,mode=700"),
    "no objects": (lambda m: (kernel._OBJECTS / "process.bpf.o").unlink(), "our files", "FAIL", "make build"),
    "no module": (
        lambda m: (kernel._OBJECTS.parent / "_bpf.abi3.so").unlink(),
        "our files", "FAIL", "tracer/_bpf",
    ),
    "old HTCondor": (
        lambda m: m.write("/commands/condor_version", "$CondorVersion: 9.0.17 x $"),
        "HTCondor", "warn", "9.0.17",
    ),
    "wrong knob": (
        lambda m: m.macros.update(JOBLENS_PERIOD="banana"),
        "knobs", "warn", "JOBLENS_PERIOD = banana",
    ),
    "wrong knob, by file and line": (
        lambda m: m.macros.update(JOBLENS_PERIOD="banana"),
        "knobs", "warn", "(/etc/x.conf, line 1)",
    ),
    "wrong knob of a sink, by file and line": (
        lambda m: m.macros.update(JOBLENS_SINK_PROMETHEUS_ADDRESS="nowhere"),
        "sinks", "FAIL", "(/etc/x.conf, line 1)",
    ),
    "an older joblensd runs": (
        lambda m: m.attached(Version="0.0.9"),
        "versions", "warn", "is installed, and joblensd 0.0.9 runs",
    ),
    "an ancient joblensd runs": (
        lambda m: m.attached(Version=None),
        "versions", "warn", "joblensd an earlier one runs",
    ),
    "not reconfigured": (
        lambda m: m.macros.update(JOBLENS_PERIOD="3"),
        "reconfigured", "warn", "since they changed: JOBLENS_PERIOD",
    ),
    "a knob that was taken away, and not reconfigured": (
        lambda m: m.macros.pop("JOBLENS_MAX_LEVEL"),
        "reconfigured", "warn", "since they changed: JOBLENS_MAX_LEVEL",
    ),
    "not restarted": (
        lambda m: m.macros.update(JOBLENS_MAX_JOBS="2048"),
        "reconfigured", "warn", "they have changed since: JOBLENS_MAX_JOBS",
    ),
    "an open page": (
        lambda m: m.macros.update(JOBLENS_SINK_PROMETHEUS_ADDRESS="0.0.0.0:9753"),
        "Prometheus page", "warn", "0.0.0.0:9753 (/etc/x.conf, line 1) is open to the network without TLS",
    ),
    "a page at a name of the network": (
        lambda m: m.macros.update(JOBLENS_SINK_PROMETHEUS_ADDRESS="node7.example.org:9753"),
        "Prometheus page", "warn", "is open to the network",
    ),
    "unknown knob": (
        lambda m: m.macros.update(JOBLENS_PERIODE="1"),
        "knobs", "warn", "did you mean JOBLENS_PERIOD",
    ),
    "no daemon": (
        lambda m: m.macros.update(DAEMON_LIST="MASTER STARTD"),
        "daemons", "FAIL", "50-joblens-ep.conf",
    ),
    "no exporter": (
        lambda m: m.macros.update(DAEMON_LIST="MASTER STARTD JOBLENSD"),
        "daemons", "warn", "Prometheus",
    ),
    "no role": (
        lambda m: m.macros.update(DAEMON_LIST="MASTER COLLECTOR"),
        "configuration", "warn", "neither",
    ),
    "no wrapper": (lambda m: m.macros.pop("USER_JOB_WRAPPER"), "wrapper", "warn", "not set"),
    "wrapper missing": (
        lambda m: m.remove("/usr/libexec/condor/joblens_wrapper"),
        "wrapper", "FAIL", "no job can",
    ),
    "wrapper not executable": (
        lambda m: m.mode("/usr/libexec/condor/joblens_wrapper", 484),
        "wrapper", "FAIL", "mode 744",
    ),
    "wrapper writable": (
        lambda m: m.mode("/usr/libexec/condor/joblens_wrapper", 511),
        "wrapper", "FAIL", "others than root",
    ),
    "site's wrapper": (
        lambda m: (m.write("/opt/site", "", 493), m.macros.update(USER_JOB_WRAPPER="/opt/site")),
        "wrapper", "warn", "not ours",
    ),
    "no helper": (
        lambda m: m.remove("/usr/libexec/condor/joblens_activate"),
        "wrapper", "warn", "joblens_activate",
    ),
    "nothing for Pythons": (
        lambda m: m.remove("/usr/libexec/condor/joblens_python/joblens_python.so"),
        "wrapper", "warn", "joblens_python.so beside joblens_wrapper is missing",
    ),
    "nothing for calls of Pythons": (
        lambda m: m.remove("/usr/libexec/condor/joblens_python_calls/joblens_calls.so"),
        "wrapper", "warn", "joblens_calls.so beside joblens_wrapper is missing",
    ),
    "what is for Pythons is anybody's": (
        lambda m: m.mode("/usr/libexec/condor/joblens_python/sitecustomize.py", 438),
        "wrapper", "warn", "others than root",
    ),
    "chained to nothing": (
        lambda m: m.write("/etc/joblens/chained_wrapper", "/opt/site\n"),
        "chained wrapper", "FAIL", "is missing",
    ),
    "chained to itself": (
        lambda m: m.write("/etc/joblens/chained_wrapper", MACROS["USER_JOB_WRAPPER"]),
        "chained wrapper", "FAIL", "our own",
    ),
    "chained by anybody": (
        lambda m: m.write("/etc/joblens/chained_wrapper", "/opt/site\n", 438),
        "chained wrapper", "FAIL", "chown",
    ),
    "chained for root alone": (
        lambda m: m.write("/etc/joblens/chained_wrapper", "/opt/site\n", 384),
        "chained wrapper", "FAIL", "mode 600",
    ),
    "chained by no path": (
        lambda m: m.write("/etc/joblens/chained_wrapper", "site"),
        "chained wrapper", "FAIL", "no absolute path",
    ),
    "no cron": (
        lambda m: m.macros.update(STARTD_CRON_JOBLIST="GPUS"),
        "cron hook", "FAIL", "STARTD_CRON_JOBLIST",
    ),
    "periodic cron": (
        lambda m: m.macros.update(STARTD_CRON_JOBLENS_MODE="Periodic"),
        "cron hook", "FAIL", "WaitForExit",
    ),
    "cron prefix": (lambda m: m.macros.update(STARTD_CRON_JOBLENS_PREFIX="X"), "cron hook", "FAIL", "glued"),
    "door closed": (
        lambda m: m.macros.pop("STARTER.STARTD_CRON_JOBLENS_METRICS"),
        "usage door", "FAIL", "SUM:JobLens",
    ),
    "startd tells nothing": (
        lambda m: m.macros.update(STARTD_JOB_ATTRS="ImageSize"),
        "startd attributes", "warn", "CondorScratchDir NumShadowStarts",
    ),
    "stock starter": (
        lambda m: m.macros.pop("STARTER_UPDATE_INTERVAL"),
        "starter interval", "warn", "= 300:",
    ),
    "stock shadow": (
        lambda m: m.macros.pop("SHADOW_QUEUE_UPDATE_INTERVAL"),
        "shadow interval", "warn", "after about 908 s",
    ),
    "protected": (
        lambda m: m.macros.update(PROTECTED_JOB_ATTRS="a, JobLensUsage"),
        "job attributes", "FAIL", "never leave",
    ),
    "too many jobs": (
        lambda m: m.write("/commands/condor_q", "Total: 2500 running"),
        "sizing", "warn", "2,500 running jobs, 250.0 queue updates a second, if STARTER_UPDATE_INTERVAL is 10",
    ),
    "no policy": (
        lambda m: m.remove("/usr/share/joblens/policies/10-default.lua"),
        "policies", "warn", "DEFAULT_LEVEL",
    ),
    "policy folder gone": (
        lambda m: (m.root / "etc/joblens/policies.d").rmdir(),
        "policies", "warn", "policies.d",
    ),
    "policy that failed": (
        lambda m: m.write("/run/joblens/policies.aside", '20-site.lua: 20-site.lua:3: rule "x": fails\n'),
        "policies", "warn", "set aside: 20-site.lua",
    ),
    "a startd that can't be asked": (
        lambda m: m.write("/run/joblens/startd", "Error: communication error"),
        "startd", "warn", "Error: communication error",
    ),
    "policy with a mistake": (
        lambda m: m.write("/etc/joblens/policies.d/20-site.lua", "return function(job slot)\nend\n"),
        "policies", "warn", "20-site.lua:1",
    ),
    "no user": (lambda m: m.write("/etc/passwd", "root:x:0:0::/:/bin/sh"), "accounts", "FAIL", "sysusers"),
    "no user for policies": (
        lambda m: m.write("/etc/passwd", "root:x:0:0::/:/bin/sh\njoblens:x:990:990::/:\n"),
        "accounts", "warn", "make install",
    ),
    "no user for joblensd": (
        lambda m: m.write("/etc/passwd", FILES["/etc/passwd"].replace("joblens-agent", "somebody")),
        "accounts", "warn", "joblensd stays root",
    ),
    "no group": (lambda m: m.write("/etc/group", "root:x:0:"), "accounts", "FAIL", "sysusers"),
    "version 1 alone": (
        lambda m: (m.remove("/sys/fs/cgroup/cgroup.procs"), m.write("/proc/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n")),
        "cgroups", "warn", "numbers come from /proc",
    ),
    "fell back to /proc": (
        lambda m: m.attached(Source="procfs", Note="numbers are from /proc, less exact: no BTF", Programs=[]),
        "source", "warn", "no BTF",
    ),
    "no level io from /proc": (lambda m: m.attached(Source="procfs", Programs=[]), "level io", "warn", "basic"),
    "nothing attached": (lambda m: m.attached(Programs=[]), "level basic", "FAIL", "nothing is counted"),
    "a part refused": (
        lambda m: m.attached(Missing={"io_uring": "the kernel refuses jl_uring: Invalid argument"}),
        "level io", "warn", "io_uring can't be counted here: the kernel refuses",
    ),
    "nonsense in attached": (
        lambda m: (m.run_dir / "attached").write_text("{"), "level basic", "FAIL", "remove it",
    ),
    "joblensd gone": (lambda m: m.remove(f"/proc/{os.getpid()}/cmdline"), "joblensd", "FAIL", "is gone"),
    "joblensd never ran": (
        lambda m: ((m.run_dir / "rows").unlink(), m.remove(f"/proc/{os.getpid()}/cmdline"), m.no_socket()),
        "joblensd", "FAIL", "does not run",
    ),
    "joblensd can't start": (
        lambda m: ((m.run_dir / "rows").unlink(), m.no_socket()), "joblensd", "FAIL", "starts, or can't",
    ),
    "nothing published": (lambda m: m.writer.publish(row(), 0.0), "last row", "warn", "nothing has been"),
    "stale rows": (
        lambda m: m.writer.publish(row(), time.time() - 60),
        "last row", "FAIL", "taken every 1 s",
    ),
    "no socket": (lambda m: m.no_socket(), "socket", "FAIL", "is not there"),
    "deaf socket": (lambda m: m.deaf(), "socket", "FAIL", "refused"),
    "joblensd hangs": (lambda m: setattr(m, "hangs", True), "socket", "FAIL", "no answer within"),
    "private socket": (lambda m: (m.run_dir / "activate.sock").chmod(384), "socket", "FAIL", "everybody"),
    "no pins": (
        lambda m: [m.remove(f"/sys/fs/bpf/joblens/0123456789abcdef/basic/links/on_{n}") for n in ("fork", "exit")],
        "pins", "warn", "mount bpffs",
    ),
    "no publisher": (lambda m: m.remove("/proc/4243/cmdline"), "publisher", "warn", "StartLog"),
    "no export": (lambda m: m.remove("/proc/4242/cmdline"), "exporter", "warn", "JobLensExportLog"),
    "no condor": (lambda m: m.macros.clear(), "configuration", "FAIL", "can't be asked"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check(machine, fault):
    spoil, what, state, words = FAULTS[fault]
    spoil(machine)
    finding = machine.findings()[what]
    assert finding.state.value == state
    assert words in finding.text + "  -> " + finding.remedy
    assert finding.remedy, "whatever is wrong has a remedy"


def told(machine, what):
    return [finding.text for name, finding in doctor.examine(machine.node()) if name == what]


@pytest.mark.parametrize(
    ("macros", "words"),
    [
        ({"JOBLENS_SINK_PROMETHEUS_ADDRESS": "[::1]:9753"}, "for this machine alone"),
        ({"JOBLENS_SINK_PROMETHEUS_ADDRESS": "localhost:9753"}, "for this machine alone"),
        (
            {"JOBLENS_SINK_PROMETHEUS_ADDRESS": ":::9753", "JOBLENS_SINK_PROMETHEUS_CERTIFICATE": "/etc/x.pem"},
            "open to the network, by TLS",
        ),
    ],
)
def test_a_page_that_nobody_else_can_read_is_well(machine, macros, words):
    machine.macros.update(macros)
    (found,) = sinks.open_page(machine.node())
    assert (found.state, words in found.text) == (State.OK, True)
    machine.macros["JOBLENS_SINKS"] = "file"
    assert list(sinks.open_page(machine.node())) == [], "there is no page"


def test_a_wrong_knob_of_a_sink_that_is_switched_off_is_told(machine):
    machine.macros.update(JOBLENS_SINKS="prometheus", JOBLENS_SINK_FILE_PERIOD="soon", JOBLENS_SINK_FILE_PATHH="/tmp/x")
    told = [found for found in sinks.sinks(machine.node()) if found.state is State.WARN]
    assert all("does not name that sink" in found.text and found.remedy for found in told)
    assert [found.text.split()[0] for found in told] == ["JOBLENS_SINK_FILE_PERIOD", "JOBLENS_SINK_FILE_PATHH"]
    assert all("(/etc/x.conf, line 1)" in found.text for found in told)


def test_what_a_sink_that_is_switched_off_lacks_is_no_mistake(machine):
    machine.macros.update(JOBLENS_SINKS="prometheus", JOBLENS_SINK_OTLP_PERIOD="5")
    assert [found for found in sinks.sinks(machine.node()) if found.state is not State.OK] == []


def test_a_knob_that_is_taken_at_the_start_stands_until_then():
    before, after = (
        {"JOBLENS_MAX_JOBS": "1024", "JOBLENS_PERIOD": "1"},
        {"JOBLENS_MAX_JOBS": "64", "JOBLENS_PERIOD": "2"},
    )
    in_force = knob_digests.digests(after, knob_digests.digests(before))
    assert knob_digests.changed(knob_digests.digests(after), in_force) == ([], ["JOBLENS_MAX_JOBS"])
    assert knob_digests.changed(knob_digests.digests(before), in_force) == (["JOBLENS_PERIOD"], [])


@pytest.mark.parametrize("value", ["2", "many", "", "1024", "01024"])
def test_a_wrong_value_changes_nothing_and_asks_for_no_restart(value):
    """The default is in force beside it, at the start and after it has been taken away."""
    unset, given = {}, {"JOBLENS_MAX_JOBS": value}
    for before, after in ((unset, given), (given, unset)):
        in_force = knob_digests.digests(after, knob_digests.digests(before))
        assert knob_digests.changed(knob_digests.digests(after), in_force) == ([], [])


SECRETS = {
    "JOBLENS_SINK_KAFKA_PASSWORD": "hunter2", "JOBLENS_SINK_OPENSEARCH_URL": "https://admin:hunter2@search.example.org",
    "JOBLENS_SINK_OTLP_TOKEN": "hunter2", "JOBLENS_SINK_KAFKA_PASSWORD_FILE": "/etc/joblens/kafka.password",
}  # fmt: skip


def test_a_bundle_is_a_bug_report_that_doctor_can_look_at_and_has_no_secret(machine, tmp_path, capsys):
    machine.macros.update(SECRETS)
    machine.write("/var/log/condor/JobLensdLog", "starts\npassword = hunter2\nhttps://bob:hunter2@x/\n")
    machine.node()
    path = tmp_path / "report.tar.gz"
    where = ["--root", str(machine.root), "--run-dir", str(machine.run_dir)]
    assert main.main(["doctor", *where, "--bundle", str(path)]) == 0
    said = capsys.readouterr()
    assert "no secret" in said.err
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path)
    report = tmp_path / bug_report.FOLDER
    texts = {file: file.read_text() for file in report.rglob("*") if file.is_file()}
    assert not [file for file, text in texts.items() if "hunter2" in text]
    assert "/etc/joblens/kafka.password" in texts[report / "commands/condor_config_val"], "where it lies is no secret"
    assert "alice" not in "".join(texts.values()), "no job's owner"
    assert texts[report / "doctor.txt"].splitlines()[-1] == said.out.splitlines()[-1]
    node = CheckedNode(str(report), uid=0)
    states = {what: finding.state for what, finding in doctor.examine(node)}
    for what in ("configuration", "HTCondor", "knobs", "kernel", "versions", "reconfigured", "level io", "sizing"):
        assert states[what] is State.OK, what
    found = {what: (finding.state, finding.text) for what, finding in doctor.examine(node)}
    assert not [what for what, (state, _) in found.items() if state is State.FAIL], "nothing is missing on the machine"
    assert found["wrapper"] == (State.OK, "/usr/libexec/condor/joblens_wrapper (as it was found there)")
    assert found["joblensd"][1].endswith(" (as it was found there)") and "process" in found["joblensd"][1]
    with pytest.raises(JobLensError, match="can't be made"):
        bug_report.write(str(path), node, "")


def test_what_was_wrong_on_a_machine_is_wrong_in_its_bug_report_and_what_doctor_did_not_look_at_is_not(machine):
    """A later doctor looks at more than the one that made the report."""
    for path in ("/usr/libexec/condor/joblens_wrapper", "/proc/4242/cmdline"):
        machine.remove(path)
    machine.write("/proc/sys/kernel/osrelease", "4.18.0-553.el8")
    there = "FAIL  wrapper: it is gone  -> make install\nok    kernel: 9.9\n\x1b[31mok wrong\nok    a: b: c\n"
    machine.write("/doctor.txt", there)
    found = {what: finding for what, finding in doctor.examine(machine.node())}
    assert found["wrapper"] == fail("it is gone (as it was found there)", "make install")
    assert found["kernel"].state is State.WARN and "as it was" not in found["kernel"].text, "its file is there"
    assert found["exporter"].text == "what this looks at is not in a bug report" and found["exporter"].unseen


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("JOBLENS_SINK_KAFKA_PASSWORD = hunter2", "JOBLENS_SINK_KAFKA_PASSWORD = (hidden)"),
        ("JOBLENS_SINK_KAFKA_PASSWORD_FILE = /etc/k", "JOBLENS_SINK_KAFKA_PASSWORD_FILE = /etc/k"),
        ("JOBLENS_PERIOD = 1", "JOBLENS_PERIOD = 1"),
        ("see https://u:p@host/x", "see https://(hidden)@host/x"),
    ],
)
def test_a_secret_is_hidden_by_its_name(line, shown):
    assert bug_report.without_secrets(line) == shown


def test_a_secret_is_hidden_wherever_it_stands():
    dump = (
        "JOBLENS_SINK_KAFKA_USER = $(MINE) hunter2\n # at: /etc/x.conf, line 1\nJOBLENS_SINK_KAFKA_PASSWORD = hunter2\n"
        "JOBLENS_SINK_OTLP_TOKEN = hunter2-and-more\nJOBLENS_SINK_FILE_PASSWORD = yes\n"
        "JOBLENS_SINK_OTLP_TOKEN_FILE = /etc/token\n"
    )
    secrets = bug_report.secrets_of(dump)
    assert secrets == ["hunter2-and-more", "hunter2"], "yes is a part of many words"
    assert bug_report.without(secrets, "as hunter2-and-more, hunter2") == "as (hidden), (hidden)"


def test_where_a_secret_was_set_says_nothing_of_it():
    verbose = (
        "JOBLENS_SINK_KAFKA_PASSWORD = hunter2\n # at: /etc/x.conf, line 3\n # raw: hunter2\n # default: hunter2\n"
        "JOBLENS_SINK_OTLP_TOKEN = first\nhunter2\n # at: /etc/x.conf, line 5\n # raw: first\nhunter2\n"
        "JOBLENS_SINKS = kafka\n # at: /etc/x.conf, line 9\n # raw: $(MINE)\n"
    )
    assert bug_report.macros_without_secrets(verbose) == (
        "JOBLENS_SINK_KAFKA_PASSWORD = (hidden)\n # at: /etc/x.conf, line 3\n"
        "JOBLENS_SINK_OTLP_TOKEN = (hidden)\n # at: /etc/x.conf, line 5\n"
        "JOBLENS_SINKS = kafka\n # at: /etc/x.conf, line 9\n # raw: $(MINE)\n"
    )


def test_a_wrapper_of_the_site_that_is_set_after_ours_is_named_with_its_line(machine):
    machine.macros["USER_JOB_WRAPPER"] = "/opt/site"
    machine.write("/opt/site", "#!/bin/sh\n", 0o755)
    machine.write("/etc/joblens/chained_wrapper", "/opt/site\n")
    assert told(machine, "chained wrapper") == ["/opt/site"]
    assert told(machine, "wrapper") == ["USER_JOB_WRAPPER = /opt/site (/etc/x.conf, line 1) is not ours"]
    [found] = [finding for name, finding in doctor.examine(machine.node()) if name == "wrapper"]
    assert found.remedy == "take that line away, so that ours runs it, then condor_reconfig"


def test_what_is_attached_is_shown_level_by_level(machine):
    assert told(machine, "source") == ["counters in the kernel (bpf)"]
    assert told(machine, "level basic") == ["1 program attached: jl_exit"]
    assert told(machine, "level io") == ["1 program attached: jl_switch"]
    machine.attached(Programs=[{"Name": "jl_exit", "Level": "basic"}])
    assert told(machine, "level io") == ["nothing is attached: no job is watched so closely, and nobody pays for it"]


def test_a_table_of_what_the_kernel_gives(machine):
    closer = [
        "profile: what io gives, and samples of stacks",
        "trace: what profile gives, and joblens trace and joblens last",
    ]
    assert told(machine, "this kernel gives") == ["basic: everything", "io: everything", *closer]
    machine.write("/proc/sys/kernel/osrelease", "6.1.0-44-amd64\n")
    machine.attached(Missing={"io_uring": "refused"})
    io = told(machine, "this kernel gives")[1]
    assert io == "io: UDP at the end of calls on sockets, not where read() or io_uring sent it; no io_uring"
    machine.attached(Missing={"stacks of waits": "refused"})
    assert told(machine, "this kernel gives")[1] == io.partition("; no io_uring")[0]
    machine.write("/proc/sys/kernel/version", "#1 SMP Debian 6.1.159-1 (2025-12-30)\n")
    assert told(machine, "this kernel gives")[2] == f"{closer[0]}, but no stacks of waits"
    assert told(machine, "this kernel gives")[3] == "trace: what profile gives, and joblens last"
    assert "stacks of waits" not in " ".join(told(machine, "level io"))
    machine.attached(Missing={"requests to NFS": "no types"})
    assert told(machine, "this kernel gives")[0] == "basic: no requests to NFS"
    assert "requests to NFS can't be counted here: no types" in " ".join(told(machine, "level basic"))
    assert "NFS" not in " ".join(told(machine, "level io"))
    machine.attached(Source="procfs", Programs=[])
    assert told(machine, "this kernel gives")[1] == "io, profile, trace: nothing"


@pytest.mark.parametrize(
    ("release", "version", "why"),
    [
        ("5.10.0-36-amd64", "#1 SMP Debian 5.10.244-1", "kernel 5.10: frame pointers only, no Python"),
        ("6.0.9", "#1 SMP", "kernel 6.0.9 can lock the machine up when a job is sampled: boot 6.4 or later"),
    ],
)
def test_what_a_kernel_lacks_of_samples_is_said(machine, release, version, why):
    machine.write("/proc/sys/kernel/osrelease", f"{release}\n")
    machine.write("/proc/sys/kernel/version", f"{version}\n")
    assert told(machine, "this kernel gives")[2] == f"profile: what io gives, and samples of stacks, but {why}"


def test_a_node_that_wants_no_programs_misses_none(machine):
    machine.macros["JOBLENS_SOURCE"] = "procfs"
    machine.attached(Source="procfs", Note="JOBLENS_SOURCE = procfs", Programs=[])
    machine.remove("/sys/kernel/btf/vmlinux")
    machine.write("/proc/self/status", "CapBnd:\t00000000008000e0\n")
    found = machine.findings()
    assert {what: found[what].state for what in ("BTF", "capabilities", "source")} == {
        "BTF": State.OK, "capabilities": State.OK, "source": State.OK,
    }  # fmt: skip


def test_costs_are_differences_the_greatest_first():
    before = {"a": (1000, 10), "b": (0, 0), "c": (5, 1), "gone": (1, 1)}
    after = {"a": (2000, 20), "b": (4_000_000, 1000), "c": (5, 1), "new": (9, 9)}
    assert [finding.text for finding in programs._shares(before, after, 2.0)] == [
        "b: 500 runs a second of 4,000 ns: 0.200 % of a core",
        "a: 5 runs a second of 100 ns: 0.000 % of a core",
        "all of them: 0.200 % of a core over 2.0 s, 1 program did not run",
    ]


def test_costs_are_measured_on_request_by_root_alone(machine):
    node = dataclasses.replace(machine.node(), root="/", uid=1000)
    assert list(programs.costs(node)) == []
    (finding,) = programs.costs(dataclasses.replace(node, cost_seconds=1.0))
    assert finding.state is State.WARN and "only root" in finding.text


@pytest.mark.parametrize("seconds", ["0", "-1", "60", "soon", "1e1"])
def test_a_time_for_costs_that_is_none_is_told(seconds, capsys):
    with pytest.raises(SystemExit):
        main.main(["doctor", f"--costs={seconds}"])
    assert "no time from 0.1 to 20 seconds" in capsys.readouterr().err


def test_selinux_denials_are_shown(machine):
    machine.write("/sys/fs/selinux/enforce", "1")
    assert machine.findings()["SELinux"].state is State.OK
    denial = 'type=AVC msg=audit(1): avc:  denied  { prog_load } for comm="joblensd\033" scontext=condor_master_t'
    machine.write("/var/log/audit/audit.log", f'type=AVC avc:  denied  {{ read }} comm="httpd"\n{denial}\n')
    finding = machine.findings()["SELinux"]
    assert finding.state is State.FAIL
    assert "1 denials" in finding.text and "audit2allow" in finding.remedy
    assert "\033" not in finding.text


def test_roles_decide_what_is_looked_at(machine):
    machine.macros["DAEMON_LIST"] = "MASTER SCHEDD"
    whats = {what for what, _ in doctor.checks(machine.node())}
    assert "sizing" in whats and "kernel" not in whats and "wrapper" not in whats
    machine.macros["DAEMON_LIST"] = "MASTER STARTD"
    whats = {what for what, _ in doctor.checks(machine.node())}
    assert "sizing" not in whats and {"kernel", "wrapper"} <= whats
    machine.macros.clear()
    whats = {what for what, _ in doctor.checks(machine.node())}
    assert "kernel" in whats and "wrapper" not in whats


def test_what_may_not_be_seen_is_said_and_the_rest_goes_on(machine):
    def hidden(node):
        yield ok("one thing")
        raise PermissionError(13, "Permission denied", "/secret\033")

    found = doctor._patiently(hidden, machine.node())
    assert [finding.state for finding in found] == [State.OK, State.WARN]
    assert "/secret\\x1b may not be read by this user" in found[1].text


def test_a_check_that_can_not_be_done_is_a_failure_with_the_errors_remedy(machine):
    def broken(node):
        raise JobLensError("rows was written by another version: install one version for all")
        yield ok("never")

    (finding,) = doctor._patiently(broken, machine.node())
    assert finding == Finding(State.FAIL, "rows was written by another version", "install one version for all")


def test_a_check_that_never_ends_is_given_up(machine, monkeypatch):
    monkeypatch.setattr(doctor, "PATIENCE", 1)

    def stuck(node):
        time.sleep(60)
        yield ok("never")

    (finding,) = doctor._patiently(stuck, machine.node())
    assert finding.state is State.WARN and "no answer within 1 s" in finding.text


def test_a_user_who_is_not_root_is_told_so(machine):
    node = dataclasses.replace(machine.node(), uid=1000)
    assert next(iter(kernel.user(node))).state is State.WARN


def test_exit_codes_lines_and_json(machine, capsys):
    machine.node()
    arguments = ["doctor", "--root", str(machine.root), "--run-dir", str(machine.run_dir)]
    assert main.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok    wrapper: /usr/libexec/condor/joblens_wrapper" in lines
    assert lines[-1].endswith(" 0 failures")
    machine.remove("/usr/libexec/condor/joblens_wrapper")
    assert main.main([*arguments, "--json"]) == 1
    found = {entry["Check"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["wrapper"]["State"] == "FAIL" and found["wrapper"]["Remedy"]
    assert found["kernel"] == {"Check": "kernel", "State": "ok", "Finding": "6.12.48-amd64", "Remedy": ""}


def test_an_interval_that_is_no_number_counts_as_the_default(machine):
    machine.macros["SHADOW_QUEUE_UPDATE_INTERVAL"] = "60 * 2"
    assert htcondor.seconds_of(machine.node(), "SHADOW_QUEUE_UPDATE_INTERVAL", 900) == 900


def test_a_finding_is_one_line_when_piped(machine):
    for what, finding in doctor.examine(machine.node()):
        assert len(doctor.lines(what, finding, doctor.style())) == 1
    assert doctor.lines("x", Finding(State.FAIL, "broken", "mend"), doctor.style()) == ["FAIL  x: broken  -> mend"]


@pytest.mark.parametrize(
    ("ftrace", "attached", "said"),
    [
        ("1\n", ["jl_open_end", "jl_map_end"], "opens and execs that failed, mmap that failed at basic"),
        ("1\n", ["jl_file_open"], "connections, opens and execs that failed at basic"),
        ("1\n", [], "unanswered connections at basic, and failing calls with their paths at io; this kernel refuses"),
        ("0\n", [], "unanswered connections at basic, and failing calls with their paths at io; this kernel has no"),
        (None, [], "unanswered connections at basic, and failing calls with their paths at io; this kernel has no"),
        ("1\n", None, "; with joblensd running, failed opens and execs too"),
    ],
)
def test_what_this_kernel_tells_of_failing_calls(machine, ftrace, attached, said):
    if ftrace:
        machine.write("/proc/sys/kernel/ftrace_enabled", ftrace)
    if attached is None:
        (machine.run_dir / "attached").unlink()
    else:
        machine.attached(Programs=[{"Name": name, "Level": "basic"} for name in ("jl_exit", *attached)])
    finding = machine.findings()["failed calls"]
    assert finding.state is State.OK and said in finding.text
    assert finding.text.startswith("Death names refused and unanswered connections")
