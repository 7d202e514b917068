"""Commands from an access point on a job whose node is behind NAT: the whole way, with a server that can be hostile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator

import nat
import pytest
from harness import NEWEST, SCRIPTS
from two_nodes import HUB, PORT, READ_BYTES, Site, whole_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    name = os.environ.get("POOL") or f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'afar')}"
    with whole_site(name, os.environ.get("SUITE") or NEWEST, tmp_path_factory.mktemp("conf")) as site:
        yield site


def test_nobody_reaches_the_node_from_outside(site: Site) -> None:
    assert f"node {site.host} is here, from {nat.ROUTER_OUTSIDE}" in site.hub_log
    probe = f"import socket; socket.create_connection(('{nat.NODE}', 9618), 10)"
    done = site.access_point.run("python3", "-c", probe, check=False)
    assert done.returncode != 0 and "OSError" in done.stderr


def threads(site: Site) -> set[str]:
    """What the job's threads are called."""
    return {each["Name"] for each in json.loads(site.asked("stacks", "--json"))["Threads"]}


def test_the_owner_sees_follows_watches_closer_and_signals_and_each_step_is_written_down(site: Site) -> None:
    ap, node, job = site.access_point, site.node, f"{site.cluster}.0"
    processes = json.loads(site.asked("ps", "--json"))
    assert any("counts" in process["Command"] or "condor_exec" in process["Command"] for process in processes)
    followed = SCRIPTS / "run", "--pool", ap.name, "--as", "alice", "timeout", "120", "joblens", "tail", job, "-f"
    with subprocess.Popen(followed, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        numbers = [int(tail.stdout.readline().split()[1]) for _ in range(15)]
        tail.terminate()
    assert numbers == list(range(numbers[0], numbers[0] + 15))
    assert "line 1\n" in site.asked("cat") and site.asked("head", "-n", "2") == "line 1\nline 2\n"
    assert "_condor_stdout" in site.asked("ls") and "==> stdout: " in site.asked("log")
    assert json.loads(site.asked("node", "--json"))["Jobs"][0]["JobId"] == job
    environment = {each["Name"]: each.get("Value") for each in json.loads(site.asked("env", "--json"))}
    assert environment["_CONDOR_SCRATCH_DIR"].startswith("/")
    peeked = json.loads(site.asked("peek", "libc.so*:environ as void*", "--json"))
    assert any(each.get("Value", "").startswith("0x") for each in peeked), peeked
    series = site.asked("peek", "libc.so*:environ as void*", "--every", "1s", "--for", "2s", "--json")
    assert {json.loads(line)["Variable"] for line in series.splitlines()} == {"environ"}
    site.asked("get", "stdout", "-o", "/tmp/fetched-from-afar")
    assert ap.shell("cat /tmp/fetched-from-afar").startswith("line 1\n")
    ap.until(lambda: "sleep" in threads(site), "a look while it sleeps: between two sleeps there is the shell alone")
    assert json.loads(site.asked("hang", "--json"))["Cause"]
    assert "nothing is kept of this run yet" in site.refused("artifacts")
    assert "joblensd refuses" in site.refused("last") and "joblensd refuses" in site.refused("trace", "counts:main")
    done = site.joblens("level", "--cluster", str(site.cluster), "io")
    assert done.returncode == 0 and f"job {job} in " in done.stdout and "1 job of 1 answered" in done.stdout, done
    node.until(lambda: "level io by hand, by alice@example.org" in node.log("JobLensdLog"), "the level in the log")
    assert "SIGUSR1 to process" in site.asked("kill", "-s", "USR1")
    node.until(lambda: site.signals() == 1, "the signal")
    assert f"job {job} has it in .joblens/notices" in site.asked("notify", "stop", "at the next event")
    told = site.asked("cat", ".joblens/notices")
    assert told.partition(" ")[2] == "alice@example.org (from afar): stop at the next event\n"
    assert "next event" not in node.log("JobLensdLog") + ap.log("JobLensDoorLog") + site.hub_log

    signed = re.findall(r"alice@example.org may (\w+) in slot\S+: (warrant \w+)", ap.log("JobLensDoorLog"))
    assert {"ps", "tail", "cat", "head", "ls", "log", "get", "env", "peek", "node", "level", "kill", "notify"} <= {
        verb for verb, _ in signed
    }
    done = node.log("JobLensdLog")
    for verb, warrant in signed:
        line = f"alice@example.org (from afar) asks for {verb} by {warrant}"
        assert done.count(line) <= 1 and done.count(warrant) <= 1, warrant
    assert f"asks for kill by {dict(signed)['kill']}" in done
    carried = re.findall(r"user (\d+): a warrant of", ap.log("JobLensRelayLog"))
    assert set(carried) == {ap.run("id", "-u", "alice").stdout.strip()} and len(carried) == len(signed)
    assert site.hub_log.count(f" to {site.host}: ") == len(signed)


def test_nobody_else_may(site: Site) -> None:
    for verb, *arguments in (("ps",), ("tail",), ("level", "io"), ("kill",)):
        assert (
            "joblens-door refuses: only its user and queue super users may do this, and you are bob@"
            in site.refused(verb, *arguments, user="bob")
        )
    assert "asked for kill, refused: only its user" in site.access_point.log("JobLensDoorLog")


def test_an_entry_holds_for_the_next_job_from_its_first_instruction_and_its_user_can_not_lift_it(site: Site) -> None:
    ap, node = site.access_point, site.node
    assert "you have no role here" in site.control("list", user="alice").stderr
    least = site.entry("--user", "alice", "--expression", "JobUniverse == 5 && ClusterId > 0", "--at-least", "io")
    wanted = f'requirements = Machine == "{site.host}"\nshould_transfer_files = YES\n'
    cluster = ap.submit(f"executable = /home/alice/reads\n{wanted}queue")
    ap.wait_running(cluster)
    job = f"{cluster}.0"
    by_entry = f"is watched at io: entry {least}, at least io, by administrator root until "
    ap.until(lambda: by_entry in site.joblens("level", job).stdout, "the new job's level, by the entry")
    ap.until(
        lambda: ap.usage(cluster).get("Io", {}).get("CallReadBytes", 0) >= READ_BYTES,
        "what it read at its first instruction",
    )
    told = " ".join(node.run("joblens", "job", job).stdout.split())
    assert f"entry {least}" in told and "slow reads" in told
    last_word = f"entry {least} of this site has the last word"
    ap.until(lambda: last_word in site.joblens("level", job, "off").stderr, "what its user is told who lifts it")
    assert by_entry in site.until_told(job)
    ap.until(lambda: "2 of 2 connected nodes" in site.control("list").stdout, "the node that has it")

    most = site.entry("--user", "alice", "--at-most", "basic", user="bob")
    assert f"entry {least}," in site.until_told(job), "an operator does not beat an administrator"
    assert "is of administrator root" in site.control("end", least, user="bob").stderr
    assert site.control("end", least).returncode == 0
    ap.until(lambda: "watched at basic" in site.joblens("level", job).stdout, "the end of the first entry")
    last_word = f"entry {most} of this site has the last word"
    ap.until(lambda: last_word in site.joblens("level", job, "io").stderr, "what its user is told who raises it")
    assert "watched at basic" in site.until_told(job)
    assert site.control("end", most, user="bob").returncode == 0
    ap.until(lambda: site.joblens("level", job, "io").returncode == 0, "the end of both")
    ap.run("condor_rm", str(cluster))


def somebody_elsewhere(site: Site) -> None:
    """Bob of the node's machine, where he is nobody's owner: the relay server knows him by a token."""
    ap = site.access_point
    token, line = (said.split(": ")[1].strip() for said in ap.run(HUB, "token", "remote", "us").stdout.splitlines())
    with (ap.root / "tmp/tokens").open("a") as tokens:
        tokens.write(line + "\n")
    ap.run("pkill", "-HUP", "-f", "hostile_relay.py relay")
    ap.until(lambda: "read again" in site.hub_log, "the server's new token")
    schedd = ap.job(site.cluster)["GlobalJobId"].partition("#")[0]
    knobs = f"SCHEDD_HOST = {schedd}\nJOBLENS_RELAY_SERVER = wss://{nat.SERVER}:{PORT}/\n"
    keep(site, ".condor/user_config", knobs)
    keep(site, ".joblens/relay.token", token + "\n")


def keep(site: Site, path: str, text: str) -> None:
    """In his home, for him alone."""
    script = 'umask 077; mkdir -p "$(dirname "$1")"; cat >"$1"'
    site.node.run("sh", "-euc", script, "keep", f"/home/bob/{path}", user="bob", input=text)


def is_for_the_schedd(site: Site, user: str) -> None:
    """Who he is for the schedd, by a token of HTCondor's."""
    known = site.access_point.run("condor_token_create", "-identity", f"{user}@example.org").stdout
    keep(site, ".condor/tokens.d/us", known)


def is_not_believed(said: str) -> bool:
    """Whether it says that no node has made the answer. A server that also sends faster than is read says less."""
    return "what has come is not believed: " in said or "nobody has signed it: more came than was asked for" in said


def test_who_is_elsewhere_asks_by_a_proof_that_nobody_between_can_make(site: Site) -> None:
    ap, node, job = site.access_point, site.node, f"{site.cluster}.0"
    somebody_elsewhere(site)

    def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
        return node.run("env", "HOME=/home/bob", "joblens", *arguments, user="bob", check=False)

    is_for_the_schedd(site, "bob")
    assert "condor_qedit fails" in asked("ps", job).stderr  # HTCondor lets him not
    is_for_the_schedd(site, "alice")
    done = asked("tail", "-n", "100000", job)
    assert done.returncode == 0 and "line 1\n" in done.stdout, f"{done.stderr}\n{site.logs}"
    said = ap.log("JobLensDoorLog")
    assert f"job {job}: somebody by condor_qedit for alice@example.org may tail in slot" in said
    assert "somebody by condor_qedit (from afar, for alice@example.org) asks for tail" in node.log("JobLensdLog")

    with site.server("kill"):
        assert "JobLensProof is not of this request" in asked("ps", job).stderr
    with site.server("again"):
        assert "refuses" in asked("ps", job).stderr
    ap.until(
        lambda: "somebody afar asked for tail, refused: this nonce" in ap.log("JobLensDoorLog"), "what is replayed"
    )
    site.asked("ps")  # the server has an answer then
    with site.server("invent"):
        assert is_not_believed(asked("ps", job).stderr)
    assert asked("ps", job).returncode == 0 and site.asked("ps"), "the job lives, and all is as before"


def test_a_server_that_does_something_again_does_nothing(site: Site) -> None:
    before = site.signals()
    site.asked("kill", "-s", "USR1")
    site.node.until(lambda: site.signals() == before + 1, "the signal")
    with site.server("replay"):
        site.asked("ps")
        site.node.until(lambda: "this has been taken before" in site.hub_log, "the node's answer to what is replayed")
    site.node.until(lambda: "refused: this has been taken before" in site.node.log("JobLensdLog"), "its line")
    site.asked("kill", "-s", "USR1")
    site.node.until(lambda: site.signals() == before + 2, "the other signal")


def test_a_server_that_gives_another_answer_is_not_believed(site: Site) -> None:
    site.asked("ps")
    with site.server("swap"):
        assert "what has come is not believed: the node of the job has not made this answer" in site.refused("ps")
    with site.server("invent"):
        assert is_not_believed(site.refused("ps"))
    site.asked("ps")


def test_a_server_that_floods_a_node_costs_answers_and_neither_its_log_nor_its_jobs(site: Site) -> None:
    node = site.node
    before = len(node.log("JobLensdLog").splitlines())
    with site.server("flood"):
        for _ in range(3):  # each comes behind a thousand that nobody has signed
            done = site.joblens("ps", f"{site.cluster}.0")
            assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done
        assert "1000 commands of nobody are sent to the node" in site.hub_log
        assert "counts" in node.run("joblens", "ps", f"{site.cluster}.0").stdout
    site.until_answered()
    node.until(lambda: "brought a warrant, and was refused" in node.log("JobLensdLog"), "a line of a refusal")
    assert len(node.log("JobLensdLog").splitlines()) < before + 300
    assert "line 1\n" in site.asked("cat")


def test_what_has_the_network_has_nothing_else(site: Site) -> None:
    for pool in (site.access_point, site.node):
        (pid,) = pool.run("pgrep", "-f", "condor_joblens.relay$").stdout.split()
        facts = dict(
            each.split(":\t", 1) for each in pool.shell(f"cat /proc/{pid}/status").splitlines() if ":\t" in each
        )
        assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-relay").stdout.strip()} != {"0"}
        assert {facts[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
        assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"].strip()) == ("1", "2", "")
        assert pool.run("stat", "-c", "%U %a", "/etc/joblens/relay.token").stdout == "root 600\n"
        listening = pool.shell("ss -Hltnp")
        assert f"pid={pid}," not in listening


def test_doctor_looks_at_both_machines_and_what_a_restart_ends_comes_back(site: Site) -> None:
    connected = f"connected to wss://{nat.SERVER}:{PORT}/"
    for pool, names in ((site.access_point, ("relay", "door")), (site.node, ("relay",))):
        said = json.loads(pool.run("joblens", "doctor", "--json", check=False).stdout)
        found = {each["Check"]: each for each in said if each["Check"] in names}
        assert {name: found[name]["State"] for name in names} == dict.fromkeys(names, "ok"), found
        assert connected in found["relay"]["Finding"]
    before = site.access_point.run("pgrep", "-f", "condor_joblens.(relay|accesspoint.door)$").stdout
    said = site.access_point.run("joblens", "restart").stdout
    assert "joblens-relay" in said and "joblens-door" in said
    after = site.access_point.run("pgrep", "-f", "condor_joblens.(relay|accesspoint.door)$").stdout
    assert not set(before.split()) & set(after.split())
    job = f"{site.cluster}.0"
    site.access_point.until(lambda: site.joblens("ps", job).returncode == 0, "an answer after the restart")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "victim, reads",
    [
        ("server", ("ps",)),
        ("joblens-relay there", ("get", "stdout", "-o", "/tmp/held")),
        ("joblens-relay", ("log",)),
        ("joblens-door", ("ps",)),
        ("joblensd", ("get", "stdout", "-o", "/tmp/held-too")),
    ],
)
def test_whatever_is_killed_within_commands_they_end_in_words_and_nothing_is_done_twice(
    victim: str, reads: tuple[str, ...], site: Site
) -> None:
    site.leave_room_for(5)
    is_door, before, log = victim == "joblens-door", site.signals(), len(site.node.log("JobLensdLog"))
    with contextlib.ExitStack() as stack:
        followed = stack.enter_context(site.begun("tail", "-f"))
        assert followed.stdout is not None and followed.stdout.readline() != ""
        carried = site.carried()
        with site.standing_still("joblens-door" if is_door else "joblensd"):
            words = (reads, ("level", "io"), ("kill", "-USR1"))
            held = [stack.enter_context(site.begun(*each)) for each in words]
            if is_door:
                site.access_point.until(lambda: site.waiting_at_the_door() == 3, "three who ask the door")
            else:
                site.access_point.until(lambda: site.carried() == carried + 3, "three commands on their way")
            site.kill(victim)
        for each in held if is_door else [followed, *held]:
            said = each.communicate(timeout=300)[1]
            assert each.returncode == 1 and said.startswith("joblens: "), (each.args, each.returncode, said)
        if is_door:
            assert followed.stdout.readline() != "", "what goes on needs no door"
    if victim == "server":
        site.start_server()
    site.until_answered()
    done = site.node.log("JobLensdLog")[log:].count("asked for kill SIGUSR1")
    assert done <= 1
    assert "SIGUSR1 to process" in site.asked("kill", "-USR1")
    site.node.until(lambda: site.signals() == before + done + 1, "the signals")
    assert site.signals() == before + done + 1


def test_without_server_and_relays_the_node_and_its_jobs_go_on(site: Site) -> None:
    ap, node = site.access_point, site.node
    wanted = f'requirements = Machine == "{site.host}"\nshould_transfer_files = YES\n'
    with site.standing_still("joblens-relay", "joblens-relay there"):
        site.kill("server")
        assert "counts" in node.run("joblens", "ps", f"{site.cluster}.0").stdout
        cluster = ap.submit(f"executable = /bin/sleep\narguments = 5\n{wanted}queue")
        ap.wait_ended(cluster)
        ap.until(lambda: ap.usage(cluster), "its numbers in its ad")
        assert "is joblens-relay running on this access point?" in site.refused("ps")
    site.start_server()
    site.until_answered()


def test_an_entry_ends_by_itself_while_the_server_is_gone(site: Site) -> None:
    ap, node = site.access_point, site.node
    wanted = f'requirements = Machine == "{site.host}"\nshould_transfer_files = YES\n'
    cluster = ap.submit(f"executable = /home/alice/counts\n{wanted}queue")
    ap.wait_running(cluster)
    longer = site.entry("--user", "alice", "--cluster", str(cluster), "--at-least", "basic")
    name = site.entry("--user", "alice", "--cluster", str(cluster), "--at-least", "io", lasts="60s")
    site.kill("server")

    def told() -> str:
        return node.run("joblens", "level", f"{cluster}.0", check=False).stdout

    node.until(lambda: f"is watched at io: entry {name}" in told(), "the level by the entry")
    node.until(lambda: "is watched at basic" in told(), "the end of the entry")
    site.start_server()
    ap.until(lambda: "taken by 2 of 2 connected nodes" in site.control("list").stdout, "the nodes that come back to it")
    held = site.control("list").stdout
    assert f"{longer} for user alice" in held and name not in held
    assert site.control("end", longer).returncode == 0
    node.until(lambda: f"entry {longer} was ended by the server" in node.log("JobLensdLog"), "the end of the other one")
    ap.run("condor_rm", str(cluster))


def test_a_command_to_a_job_that_was_evicted_is_nothing_for_the_node_on_which_it_runs_then(site: Site) -> None:
    """The other node is the access point itself: its users ask it from afar too if it does not answer on the spot."""
    ap = site.access_point
    other = ap.run("hostname").stdout.strip()
    wanted = f'requirements = Machine == "{site.host}"\nshould_transfer_files = YES\n'
    cluster = ap.submit(f"executable = /home/alice/counts\n{wanted}queue")
    job, afar = f"{cluster}.0", ("--run-dir", "/nowhere")
    ap.wait_running(cluster)
    ap.until(lambda: site.joblens("kill", job, "-USR1").returncode == 0, "its signal")
    ap.run("condor_qedit", job, "Requirements", f'Machine == "{other}"')
    ap.run("condor_vacate_job", "-fast", job)
    with site.server("replay"):
        ap.until(lambda: site.joblens("ps", job, *afar).returncode == 0, "an answer of the other node")
    assert other in str(ap.job(cluster)["RemoteHost"])
    ap.until(lambda: "the replayed one came to this: this is for another run" in site.hub_log, "what it says to it")
    assert "refused: this is for another run" in ap.log("JobLensdLog")
    assert "alice@example.org (from afar) asks for ps by warrant" in ap.log("JobLensdLog")
    said = site.joblens("kill", job, "-USR1", *afar).stdout
    assert "SIGUSR1 to process" in said

    def output() -> str:
        return site.joblens("tail", job, "-n", "100000", *afar).stdout

    ap.until(lambda: "signalled" in output(), "the signal")
    assert output().count("signalled") == 1
    ap.run("condor_rm", str(cluster))


def test_at_last_the_job_ends_by_a_signal_from_afar(site: Site) -> None:
    assert "SIGTERM to process" in site.asked("kill")
    site.access_point.wait_ended(site.cluster)
    assert site.refused("ps") != ""
