"""What each process may do, read from the kernel: those with BPF have no network, the one with the network nothing.

The supervisor between condor_master and the one with the network has a socket that it only keeps.
"""

from __future__ import annotations

import re

import pytest
from harness import Pool

from condor_joblens.common.privilege import CAPABILITIES, NEEDED
from condor_joblens.export import supervisor

NETWORK = "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 /proc/net/raw /proc/net/raw6 /proc/net/packet"
PROGRAMS = {
    "agent": "condor_joblens.agent",
    "supervisor": "condor_joblens.export.supervisor",
    "export": r"condor_joblens\.export [0-9]+$",
    "policy": "-m condor_joblens.policy.child",
    "starter": "condor_joblens.common.starter",
    "files": "condor_joblens.owner_files.helper",
    "lender": "condor_joblens.common.lender",
    "refuser": "condor_joblens.common.call_refuser",
    "loader": "condor_joblens.tracer.loader_process",
    "config": "joblens_read_config",
    "asker": "joblens_ask_startd",
    "publish": "condor_joblens.publish.slotads",
}


@pytest.fixture(scope="module")
def pids(shared_pool: Pool) -> dict[str, str]:
    """The processes of ours; a job has run, so that all of them are there."""
    pool = shared_pool
    pool.wait_ended(pool.submit("executable = /bin/true\nqueue"))

    def found() -> dict[str, str]:
        pids = {name: pool.run("pgrep", "-f", "--", program, check=False).stdout for name, program in PROGRAMS.items()}
        return {name: pid.split()[0] for name, pid in pids.items()} if all(pids.values()) else {}

    return pool.until(found, "all processes of ours")


def status(pool: Pool, pid: str) -> dict[str, str]:
    lines = pool.run("cat", f"/proc/{pid}/status").stdout.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def capabilities(pool: Pool, pid: str) -> set[int]:
    """Those in force, and any that could be had again."""
    numbers = status(pool, pid)
    held = int(numbers["CapEff"], 16) | int(numbers["CapPrm"], 16) | int(numbers["CapAmb"], 16)
    return {number for number in range(64) if held >> number & 1}


def uid_of(pool: Pool, user: str) -> str:
    return pool.run("id", "-u", user).stdout.strip()


def network_sockets(pool: Pool, pid: str) -> set[str]:
    inodes = set(re.findall(r"socket:\[(\d+)\]", pool.run("ls", "-l", f"/proc/{pid}/fd").stdout))
    return inodes & set(re.findall(r"\d+", pool.run("sh", "-c", NETWORK, check=False).stdout))


def test_joblensd_has_what_it_uses_and_no_network(pool: Pool, pids: dict[str, str]) -> None:
    assert capabilities(pool, pids["agent"]) == set()
    assert int(status(pool, pids["agent"])["CapBnd"], 16) == 0
    assert (status(pool, pids["agent"])["NoNewPrivs"], status(pool, pids["agent"])["Seccomp"]) == ("1", "2")
    assert set(status(pool, pids["agent"])["Uid"].split()) == {uid_of(pool, "joblens-agent")} != {"0"}
    assert status(pool, pids["agent"])["Groups"] == ""
    assert network_sockets(pool, pids["agent"]) == set()


def test_who_works_in_jobs_folders_can_become_a_user_and_nothing_else(pool: Pool, pids: dict[str, str]) -> None:
    facts = status(pool, pids["files"])
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-files").stdout.strip()} != {"0"}
    assert capabilities(pool, pids["files"]) == {CAPABILITIES["CAP_SETUID"], CAPABILITIES["CAP_SETGID"]}
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"]) == ("1", "2", "")
    assert network_sockets(pool, pids["files"]) == set()


def test_who_lends_priority_can_do_that_and_nothing_else(pool: Pool, pids: dict[str, str]) -> None:
    facts = status(pool, pids["lender"])
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-files").stdout.strip()} != {"0"}
    assert capabilities(pool, pids["lender"]) == {CAPABILITIES["CAP_SYS_NICE"]}
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"]) == ("1", "2", "")
    assert network_sockets(pool, pids["lender"]) == set()


def test_who_loads_programs_can_do_nothing_else(pool: Pool, pids: dict[str, str]) -> None:
    facts = status(pool, pids["loader"])
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-files").stdout.strip()} != {"0"}
    assert capabilities(pool, pids["loader"]) == {CAPABILITIES[name] for name in NEEDED}
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"]) == ("1", "2", "")
    assert network_sockets(pool, pids["loader"]) == set()


def test_who_refuses_system_calls_can_do_nothing_else(pool: Pool, pids: dict[str, str]) -> None:
    facts = status(pool, pids["refuser"])
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-files").stdout.strip()} != {"0"}
    assert capabilities(pool, pids["refuser"]) == set()
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"]) == ("1", "2", "")
    assert network_sockets(pool, pids["refuser"]) == set()


@pytest.mark.parametrize("name, user", [("config", "root"), ("asker", "condor")])
def test_who_runs_htcondors_programs_has_no_capability(pool: Pool, pids: dict[str, str], name: str, user: str) -> None:
    facts = status(pool, pids[name])
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", user).stdout.strip()}
    assert capabilities(pool, pids[name]) == set()
    assert (facts["NoNewPrivs"], facts["Groups"]) == ("1", "")


def test_real_time_priority_is_lent_alone(pool: Pool, pids: dict[str, str]) -> None:
    """No job starts or ends now."""

    def policies() -> dict[str, str]:
        names = ("agent", "files", "starter", "policy", "lender")
        return {name: pool.run("ps", "-o", "cls=", "-p", pids[name]).stdout.strip() for name in names}

    expected = {**dict.fromkeys(("agent", "files", "starter", "policy"), "TS"), "lender": "RR"}
    assert pool.until(lambda: policies() == expected, "a loan to come to its end")


def test_exporter_has_the_network_and_nothing_else(pool: Pool, pids: dict[str, str]) -> None:
    user = pool.run("id", "-u", "joblens").stdout.strip()
    assert set(status(pool, pids["export"])["Uid"].split()) == {user} != {"0"}
    assert capabilities(pool, pids["export"]) == set()
    assert len(network_sockets(pool, pids["export"])) == 1


def test_the_exporters_supervisor_keeps_its_port_and_can_do_little_else(pool: Pool, pids: dict[str, str]) -> None:
    said = status(pool, pids["supervisor"])
    assert set(said["Uid"].split()) == {"0"} and said["NoNewPrivs"] == "1"
    assert capabilities(pool, pids["supervisor"]) == {CAPABILITIES[name] for name in supervisor.CAPABILITIES}
    assert int(said["CapBnd"], 16) == sum(1 << CAPABILITIES[name] for name in supervisor.CAPABILITIES)
    assert network_sockets(pool, pids["supervisor"]) == network_sockets(pool, pids["export"])


TAKE = """
import errno, os, socket, sys, time
exporter, ways = f"/proc/{sys.argv[1]}", (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
patience, end = time.monotonic() + 60, None
while end is None or time.monotonic() < end:
    if end is None and not os.path.exists(exporter):
        end = time.monotonic() + 4
    assert end or time.monotonic() < patience, "the exporter is not killed"
    for host in ("127.0.0.1", "0.0.0.0"):
        for way in ways:
            with socket.socket() as stranger:
                if way:
                    stranger.setsockopt(socket.SOL_SOCKET, way, 1)
                try:
                    stranger.bind((host, 9753))
                    stranger.listen()
                except OSError as error:
                    assert error.errno == errno.EADDRINUSE
                else:
                    raise SystemExit("taken")
"""


def test_nobody_takes_the_pages_port_while_the_exporter_is_down(pool: Pool, pids: dict[str, str]) -> None:
    """A page of his own there would be the site's numbers."""
    killed = f"(sleep 1; kill -9 {pids['export']}) >/dev/null 2>&1 &"
    pool.shell(killed)
    pool.run("python3", "-c", TAKE, pids["export"], user="alice")
    page = pool.run("curl", "-fsS", "http://127.0.0.1:9753/metrics").stdout
    assert "joblens_up 1.0" in page
    another = pool.run("pgrep", "-f", PROGRAMS["export"]).stdout.split()
    assert another and another != [pids["export"]]
    pids["export"] = another[0]


def test_each_role_has_a_user_of_its_own(pool: Pool, pids: dict[str, str]) -> None:
    """Else one of them, once compromised, could end the others."""
    users = {
        name: status(pool, pids[name])["Uid"].split()[0] for name in ("agent", "export", "policy", "files", "publish")
    }
    assert len(set(users.values())) == 5
    assert users["policy"] == pool.run("id", "-u", "joblens-policy").stdout.strip()


@pytest.mark.parametrize("name", ["policy", "starter", "publish"])
def test_the_others_have_neither(pool: Pool, pids: dict[str, str], name: str) -> None:
    assert "0" not in status(pool, pids[name])["Uid"].split()
    assert capabilities(pool, pids[name]) == set()
    assert network_sockets(pool, pids[name]) == set()


@pytest.mark.parametrize("name", ["agent", "supervisor", "export", "policy", "starter", "files"])
def test_none_has_the_pools_session_key(pool: Pool, pids: dict[str, str], name: str) -> None:
    environment = pool.run("cat", f"/proc/{pids[name]}/environ").stdout
    assert "CONDOR_INHERIT" not in environment
    assert "CONDOR_PRIVATE_INHERIT" not in environment


@pytest.mark.soak
def test_another_execute_costs_no_number(brisk: Pool) -> None:
    """What works in jobs' folders can't open any other; joblensd begins again as root, and takes the counters over."""
    pool = brisk
    cluster = pool.submit("executable = /bin/sleep\narguments = 30\nqueue")
    pool.until(lambda: pool.usage(cluster), "the first numbers")
    before = pool.run("pgrep", "-f", "--", PROGRAMS["files"]).stdout
    with pool.config("SLOT9_EXECUTE = /var/tmp"):

        def another() -> bool:
            return pool.run("pgrep", "-f", "--", PROGRAMS["files"], check=False).stdout not in ("", before)

        pool.until(another, "joblensd to begin again")
        assert "EXECUTE is another folder" in pool.log("JobLensdLog")
        assert pool.last_usage(cluster)["Complete"]


AGENT = "-m condor_joblens.agent$"
WITHOUT_ITS_USER = "cp -p /etc/passwd /root/passwd && sed -i /^joblens-agent:/d /etc/passwd"
PLACES = "/run/joblens /run/joblens/rows /run/joblens/slots.state /run/joblens/ads /sys/fs/bpf/joblens"


@pytest.mark.soak
def test_from_its_own_user_to_root_and_back_costs_no_number(brisk: Pool) -> None:
    """What the one has left, the other takes over; policies that root alone can read are in force in both."""
    pool = brisk

    def restarted() -> tuple[str, set[str]]:
        """As whom joblensd runs then, and whose its files and pins are."""
        starts = pool.log("JobLensdLog").count("watches jobs below")
        pool.run("pkill", "-USR1", "-f", "--", AGENT)
        pool.until(lambda: pool.log("JobLensdLog").count("watches jobs below") > starts, "joblensd to begin again")
        pid = pool.run("pgrep", "-f", "--", AGENT).stdout.split()[0]
        return status(pool, pid)["Uid"].split()[0], set(pool.shell(f"stat -c %u {PLACES}").split())

    own = uid_of(pool, "joblens-agent")
    pool.shell("mkdir -p /etc/joblens/private && chmod 700 /etc/joblens/private")
    pool.shell("""echo 'rule "for root alone" { level = "io" }' >/etc/joblens/private/90-root.lua""")
    with pool.config("JOBLENS_POLICY_DIR = /etc/joblens/private\nMASTER_JOBLENSD_BACKOFF_CONSTANT = 3"):
        cluster = pool.submit("executable = /bin/sleep\narguments = 1000\nqueue")
        pool.until(lambda: pool.usage(cluster), "the first numbers")
        pool.until(lambda: " io: for root alone" in pool.log("JobLensdLog"), "the policy of root alone")
        pool.shell(WITHOUT_ITS_USER)
        try:
            assert restarted() == ("0", {"0"})
            assert "joblensd stays root: there is no user joblens-agent" in pool.log("JobLensdLog")
        finally:
            pool.shell("cp -p /root/passwd /etc/passwd")
        assert restarted() == (own, {own})
        pool.run("condor_rm", str(cluster))
        assert pool.last_usage(cluster)["Complete"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["files", "starter", "refuser"])
def test_the_end_of_a_process_that_only_root_can_start_costs_no_number(brisk: Pool, name: str) -> None:
    """joblensd ends as well, and condor_master starts it again; the kernel goes on counting."""
    pool = brisk
    cluster = pool.submit("executable = /bin/sleep\narguments = 25\nqueue")
    pool.until(lambda: pool.usage(cluster), "the first numbers")

    def pids_of(program: str) -> str:
        return pool.run("pgrep", "-f", "--", program, check=False).stdout

    agent, killed = pids_of("-m condor_joblens.agent"), pids_of(PROGRAMS[name])
    pool.run("pkill", "-9", "-f", "--", PROGRAMS[name])
    pool.until(lambda: pids_of(PROGRAMS[name]) not in ("", killed), "another one to be there")
    assert pids_of("-m condor_joblens.agent") != agent
    assert pool.last_usage(cluster)["Complete"]
    assert "was ended by signal 9: joblensd ends" in pool.log("JobLensdLog")


def refused_calls(pool: Pool) -> list[str]:
    return [line for line in pool.log("JobLensdLog").splitlines() if "may not make the system call" in line]


TWO_LEVELS = """
executable = /bin/sh
arguments = "-c 'while :; do head -c 9999 /dev/urandom >f; sleep 1; done'"
+JobLensLevel = "$(level)"
queue level in (basic, io)
"""


def test_none_of_joblensds_work_needs_a_call_that_its_list_lacks(brisk: Pool) -> None:
    """Levels, another configuration, a log that is moved away and one that is full, commands of users, another EXECUTE.

    conftest.py asks the same of all tests of this layer.
    """
    pool = brisk
    cluster = pool.submit(TWO_LEVELS)
    pool.wait_running(cluster, 2)
    pool.until(lambda: all("Process" in job.get("JobLensUsage", {}) for job in pool.jobs(cluster)), "the first numbers")
    pool.run("joblens", "level", f"{cluster}.0", "io", user="alice")
    pool.run("joblens", "level", f"{cluster}.0", "off")
    pool.run("timeout", "3", "joblens", "watch", f"{cluster}.1", user="alice", check=False)
    pool.run("joblens", "status")
    pool.run("joblens", "artifacts", f"{cluster}.1", user="alice", check=False)
    pool.run("mv", "/var/log/condor/JobLensdLog", "/var/log/condor/JobLensdLog.moved")
    with pool.config("MAX_JOBLENSD_LOG = 40"):
        pool.until(lambda: "configuration read again" in pool.log("JobLensdLog.old"), "a log that is full")
    another = f"/var/tmp/execute.{cluster}"
    pool.run("mkdir", another)
    with pool.config(f"SLOT9_EXECUTE = {another}"):
        pool.until(lambda: pool.log("JobLensdLog").count("watches jobs below"), "joblensd to begin again")
        pool.run("condor_rm", str(cluster))
        assert len(pool.wait_ended(cluster)) == 2
    moved = pool.log("JobLensdLog.moved") + pool.log("JobLensdLog.old")
    assert refused_calls(pool) == [] and "may not make the system call" not in moved
