"""A whole joblensd as condor_master starts it, and jobs behind the real wrapper; what HTCondor would do is done here.

No startd confirms these jobs' ads. So they are of the local universe, whose ads joblensd takes as they are.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ground as grounds
import numpy as np
import pytest
from ground import BPFFS, CHECKOUT, NODE, Ground, forked, remove_cgroup, until

from condor_joblens.common import condor_config, privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.privilege import AGENT_USER
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.shm.reader import Reader

CONDOR, ALICE, FIRST_OF_OURS = 64, 12345, 64101
"""User ids: HTCondor's, the jobs' owner's, and of joblensd's own users, one after the other."""

SECONDS = 120.0 * grounds.PATIENCE

HOOKS = CHECKOUT / "hooks"

PRIVATE = (
    'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && mount -t bpf -o mode=700 bpf "$3" && shift 3'
)
"""In namespaces of joblensd's own: the users that an installation makes, and a bpffs without another one's pins."""

PATIENT = """
import dataclasses
import sys
from condor_joblens.agent import configuration
from condor_joblens.agent.__main__ import main
from condor_joblens.common import own_process
from condor_joblens.control import server
server.PATIENCE *= {patience}
own_process.START_SECONDS *= {patience}
limits = configuration.limits
configuration.limits = lambda config: dataclasses.replace(
    limits(config), start_seconds=limits(config).start_seconds * {patience}
)
sys.exit(main())
"""
"""joblensd, whose helpers and policy child have as long to start as an emulated machine needs, and callers to ask."""


@dataclass
class Job:
    """A job, and its folder as HTCondor's starter makes it."""

    number: int
    pid: int  # of its first process: the wrapper, and then what it becomes
    folder: Path
    _starter: int
    _to_starter: int

    def usage(self) -> str:
        """JobLensUsage as the starter would send it to the access point; empty: there is none so far."""
        ad = (self.folder / "htcondor" / ".update.ad").read_text()
        found = re.search(r"^JobLensUsage = (.*)$", ad, re.MULTILINE)
        return "" if found is None else found.group(1)

    def kill(self) -> None:
        """Its first process is ended from outside, and reaped as by its starter."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def clear(self) -> None:
        """Its starter takes the slot's cgroup away and ends."""
        self.kill()
        if self._to_starter >= 0:
            os.close(self._to_starter)
            self._to_starter = -1
            assert os.waitpid(self._starter, 0)[1] == 0


class WholeNode:
    """joblensd, with the knobs that are given besides what a node needs."""

    def __init__(self, base: Path, **knobs: object) -> None:
        self.base, self.jobs = base, list[Job]()
        shutil.rmtree(NODE, ignore_errors=True)  # what an earlier run that was killed has left
        for name in ("", "bin", "libexec", "execute", "log", "run", "artifacts"):
            (NODE / name).mkdir(mode=0o755)
        for name in ("execute", "log"):
            os.chown(NODE / name, CONDOR, CONDOR)
        self._install()
        self._configure(knobs)
        accounts = _accounts()
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{PRIVATE} && exec "$@"', "sh"]
        program = [sys.executable, "-c", PATIENT.format(patience=grounds.PATIENCE)]
        self.environment = {
            "PATH": f"{NODE}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with open(NODE / "said", "wb") as said:
            self._process = subprocess.Popen(
                [*command, *accounts, str(BPFFS), *program],
                env=self.environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def wait_until_it_listens(self) -> None:
        """Jobs' wrappers reach it from then on."""
        until(lambda: (NODE / "run" / "activate.sock").exists() or self._process.poll() is not None, SECONDS)
        assert self._process.poll() is None, self.log()

    def close(self) -> None:
        """All of it ends, in an orderly way."""
        for job in self.jobs:
            job.clear()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        assert code == 0, self.log()
        shutil.rmtree(NODE)

    def log(self) -> str:
        """All that it has said."""
        log = NODE / "log" / "JobLensdLog"
        return (NODE / "said").read_text() + (log.read_text() if log.exists() else "")

    def user(self) -> int:
        """As whom joblensd works."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"^Uid:\t(\d+)", status, re.MULTILINE)[0])

    def start(self, number: int, *command: str, **ad: str) -> Job:
        """A job of Alice's with these attributes in its ad, as HTCondor's starter begins it."""
        told, tells = os.pipe()
        lasts, ends = os.pipe()

        def starter() -> None:
            os.close(ends)
            os.close(told)
            folder, cgroup = self._folder(number, ad), self._cgroup()
            pid = forked(lambda: _become_job(folder / "scratch", cgroup, command))
            os.write(tells, f"{pid} {folder}".encode())
            os.waitpid(pid, 0)
            os.read(lasts, 1)
            remove_cgroup(cgroup)

        process = forked(starter)
        os.close(tells)
        os.close(lasts)
        pid, _, folder = os.read(told, 4096).decode().partition(" ")
        os.close(told)
        self.jobs.append(Job(number, int(pid), Path(folder), process, ends))
        return self.jobs[-1]

    def rows(self, job: Job) -> np.ndarray:
        """What joblensd publishes of the job now: one row, or none if it is not known so far."""
        rows = Reader(str(NODE / "run" / "rows")).rows()[0]
        found: np.ndarray = rows[rows["job_id"] == f"{job.number}.0".encode()]
        return found

    def joblens(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command says to root, where joblensd's users are known."""
        command = self.command(*arguments)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=SECONDS)

    def command(self, *arguments: str, user: int = 0) -> list[str]:
        """What that is, with `environment`."""
        program = "import sys; from condor_joblens.cli.main import main; sys.exit(main())"
        its = f"/proc/{self._process.pid}"
        where = ["nsenter", f"--mount={its}/ns/mnt", f"--root={its}/root"]  # a guest's root is not that of its mounts
        return [*where, "setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c", program, *arguments]

    def configure_anew(self, **knobs: object) -> None:
        """As condor_reconfig does, with these knobs besides what a node needs."""
        self._configure(knobs)
        self._process.send_signal(signal.SIGHUP)

    def _install(self) -> None:
        programs = {"joblens_wrapper": HOOKS / "joblens_wrapper", "joblens_activate": grounds.node_helper_program()}
        for name, source in programs.items():
            path = NODE / "libexec" / name
            path.write_bytes(source.read_bytes())
            path.chmod(0o755)

    def _configure(self, knobs: dict[str, object]) -> None:
        """Makes what condor_config_val says. An emulated machine needs more CPU for the same than a node has."""
        macros = {
            "EXECUTE": NODE / "execute",
            "LOG": NODE / "log",
            "LIBEXEC": NODE / "libexec",
            "USER_JOB_WRAPPER": NODE / "libexec" / "joblens_wrapper",
            "JOBLENS_RUN_DIR": NODE / "run",
            "JOBLENS_ARTIFACT_DIR": NODE / "artifacts",
            "JOBLENS_BASE_CGROUP": self.base.relative_to(Tree.find().mount),
            "JOBLENS_POLICY_DIR": CHECKOUT / "lua_policies",
            "JOBLENS_POLICY_CPU_MILLISECONDS": 200 * grounds.PATIENCE,
            "JOBLENS_MAX_CPU": 8,
            **knobs,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in macros.items())
        program = NODE / "bin" / condor_config.COMMAND
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        program.chmod(0o755)

    def _folder(self, number: int, ad: dict[str, str]) -> Path:
        """The calling starter's, with the job's ads in it."""
        folder = NODE / "execute" / f"dir_{os.getpid()}"
        for path, owner in ((folder, CONDOR), (folder / "htcondor", CONDOR), (folder / "scratch", ALICE)):
            path.mkdir(mode=0o755)
            os.chown(path, owner, owner)
        known = {
            "ClusterId": str(number),
            "ProcId": "0",
            "NumShadowStarts": "1",
            "Owner": '"alice"',
            "RequestCpus": "1",
            "RequestMemory": "128",
            "GlobalJobId": f'"access.example.org#{number}.0#1700000000"',
            **{name: f'"{value}"' for name, value in ad.items()},
        }
        for path, owner in ((folder / "scratch" / ".job.ad", ALICE), (folder / "htcondor" / ".update.ad", CONDOR)):
            path.write_text("".join(f"{name} = {value}\n" for name, value in known.items()))
            os.chown(path, owner, owner)
        return folder

    def _cgroup(self) -> Path:
        cgroup = self.base / f"{str(NODE / 'execute').replace('/', '_')}_local_slot1_1@here.slice"
        cgroup.mkdir()
        return cgroup


def _become_job(scratch: Path, cgroup: Path, command: tuple[str, ...]) -> None:
    (cgroup / "cgroup.procs").write_text("0")
    os.chdir(scratch)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.setgroups([])
    os.setresgid(ALICE, ALICE, ALICE)
    os.setresuid(ALICE, ALICE, ALICE)
    wrapper = str(NODE / "libexec" / "joblens_wrapper")
    environment = {"PATH": "/usr/bin:/bin", "_CONDOR_SLOT": "local_slot1_1", "_CONDOR_SCRATCH_DIR": str(scratch)}
    os.execve(wrapper, [wrapper, *command], environment)


def _users() -> dict[str, pwd.struct_passwd]:
    """Those that an installation makes, HTCondor's and the owner of jobs."""
    ours = re.findall(r"^u (\S+)", (HOOKS / "joblens.sysusers").read_text(), re.MULTILINE)
    assert AGENT_USER in ours
    ids = {"condor": CONDOR, "alice": ALICE, **{name: FIRST_OF_OURS + number for number, name in enumerate(ours)}}
    return {name: pwd.struct_passwd((name, "x", id, id, "", "/nonexistent", "/bin/false")) for name, id in ids.items()}


def _accounts() -> list[str]:
    """Files like /etc/passwd and /etc/group, with these users."""
    users = _users()
    files = []
    for file, line in (("passwd", "{name}:x:{id}:{id}::/nonexistent:/bin/false\n"), ("group", "{name}:x:{id}:\n")):
        before = Path("/etc", file).read_text().splitlines(keepends=True)
        kept = [each for each in before if each.partition(":")[0] not in users]
        path = NODE / file
        lines = (line.format(name=name, id=user.pw_uid) for name, user in users.items())
        path.write_text("".join([*kept, *lines]))
        files.append(str(path))
    return files


@contextlib.contextmanager
def whole_node(name: str, **knobs: object) -> Iterator[WholeNode]:
    """A node, until the end of the block; nothing of it stays."""
    base, own = Ground.place(name), Ground.place("joblens")
    had_own = own.exists()
    base.mkdir()
    if not Tree.find().hybrid:
        Ground.delegate(base)
    node = WholeNode(base, **knobs)
    patch = pytest.MonkeyPatch()
    patch.setattr(privilege, "user", _users().get)  # whose files are read here: see PRIVATE
    try:
        node.wait_until_it_listens()
        yield node
    except (AssertionError, JobLensError):
        print(node.log())
        raise
    finally:
        patch.undo()
        node.close()
        remove_cgroup(base)
        if not had_own and own.exists():
            own.rmdir()
