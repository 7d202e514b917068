"""The command as a person meets it: its help, its errors, its tables, and JSON from everything."""

import json
import os
import subprocess
import sys

import pytest
from cli_samples import publish, row

from condor_joblens.cli import main, metrics
from condor_joblens.cli.terminal import Style
from condor_joblens.common import condor_config, errors
from condor_joblens.common import config as knobs
from condor_joblens.model.metrics import METRICS

DUMP = """\
# Configuration from machine: node

# Parameters with names that match ^(JOBLENS_.*)$:
JOBLENS_MAX_JOBS = 64
 # at: /etc/condor/config.d/60-site.conf, line 7, use FEATURE:x+0
 # raw: $(N)
JOBLENS_PERIOD = banana
 # at: <Environment>
 # raw: banana
JobLens_Periode = 2
 # at: /etc/condor/config.d/60-site.conf, line 9
 # raw: 2
JOBLENS_BASE_CGROUP =\x20
 # at: <Default>
"""


def joblens(*arguments, **environment):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "condor_joblens.cli.main", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def condor(tmp_path, monkeypatch):
    """A condor_config_val that prints DUMP."""
    program = tmp_path / "bin" / "condor_config_val"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{DUMP}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize("command", main.COMMANDS)
def test_every_command_documents_itself(command):
    done = joblens(command, "--help", COLUMNS="200")
    assert done.returncode == 0
    words = main.COMMANDS[command]
    assert words[1:40] in done.stdout and "--json" in done.stdout
    assert all(line.rstrip().split("  ")[-1] for line in done.stdout.splitlines() if line.startswith("  -"))


def test_help_has_a_line_for_each_command():
    told = joblens("--help", COLUMNS="200").stdout
    assert [command for command, words in main.COMMANDS.items() if words[:40] not in told] == []


@pytest.mark.parametrize("command", main.COMMANDS)
def test_every_command_is_in_its_page(command):
    page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "cli.md")
    with open(page, encoding="utf-8") as file:
        assert f"joblens {command}" in file.read()


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"], ["top", "-n", "1", "-d", "0.1"], ["job", "12.0"], ["metrics"], ["config"],
        ["doctor", "--root", "/nonexistent"],
    ],
)  # fmt: skip
def test_json_of_every_command_is_json(tmp_path, condor, capsys, arguments):
    publish(tmp_path, "rows", row())
    where = ["--run-dir", str(tmp_path)] if arguments[0] in ("status", "top", "job") else []
    main.main([*arguments, "--json", *where])
    assert json.loads(capsys.readouterr().out)


def test_metrics_have_the_name_that_prometheus_shows(capsys):
    main.main(["metrics", "--json"])
    names = {entry["Name"]: entry["Prometheus"] for entry in json.loads(capsys.readouterr().out)}
    assert names["Cpu.UserSeconds"] == "joblens_job_cpu_user_seconds_total"
    assert names["Process.Live"] == "joblens_job_process_live"
    assert names["Fs.Cvmfs.Opens"] == 'joblens_job_fs_opens_total{filesystem="cvmfs"}'


@pytest.mark.parametrize(
    "arguments",
    [[], ["toop"], ["top", "-n", "0"], ["top", "-d", "banana"], ["top", "-s", "colour"], ["job"], ["status", "x"]],
)
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert end.value.code == 2
    assert "joblens" in capsys.readouterr().err


@pytest.mark.parametrize("command", main.COMMANDS)
def test_an_option_that_there_is_not_is_wrong_usage_of_every_command(command, capsys):
    with pytest.raises(SystemExit) as exit:
        main.main([command, "--no-such-option"])
    assert exit.value.code == 2 and "usage: joblens" in capsys.readouterr().err


MORE = {"get": ["file"], "notify": ["text"], "peek": ["reco:x"], "trace": ["reco:fit"]}
OF_A_JOB = [
    command
    for command in main.COMMANDS
    if any(action.dest == "id" for action in main.parser()._subparsers._group_actions[0].choices[command]._actions)
]


@pytest.mark.parametrize("command", sorted({*OF_A_JOB, "jobs"} - {"ask", "compare"}))
def test_a_name_that_no_job_can_have_is_wrong_usage_of_every_command(command, tmp_path, capsys, monkeypatch):
    """Nobody is asked: there is no socket here, and no HTCondor."""
    monkeypatch.setenv("PATH", str(tmp_path))
    where = [] if command == "jobs" else ["--run-dir", str(tmp_path)]
    assert main.main([command, "x" * 257, *MORE.get(command, []), *where]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("joblens: ") and said.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["level", "1.0", "nonsense"],
        ["level", "--cluster", "1", "nonsense"],
        ["level", "1.0", "io", "--clear"],
        ["ls", "1.0", ""],
        ["cat", "1.0", "x" * 4097],
        ["notify", "1.0", ""],
        ["peek", "1.0", "a:b", "--for", "1s"],
        ["artifacts", "1.0", "-o", "x"],
        ["ps"],
        ["hang"],
    ],
    ids=" ".join,
)
def test_arguments_without_sense_are_wrong_usage(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main.main([*arguments, "--run-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["trace", "1.0", "nonsense"], ["peek", "1.0", "nonsense"]], ids=" ".join)
def test_a_specification_without_sense_is_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main.main(arguments)
    assert exit.value.code == 2 and "write FILE:" in capsys.readouterr().err


def test_numpy_waits_until_rows_are_read():
    code = "import sys, condor_joblens.cli.main as m; m.parser(); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    code = "import sys, condor_joblens.cli.doctor, condor_joblens.cli.config; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    publish(tmp_path, "rows", row())
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "condor_joblens.cli.main", "metrics"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_dump_is_read_with_its_sources():
    found = condor_config.parse_dump(DUMP)
    assert found["JOBLENS_MAX_JOBS"].value == "64"
    assert found["JOBLENS_MAX_JOBS"].source == "/etc/condor/config.d/60-site.conf, line 7, use FEATURE:x+0"
    assert found["JOBLENS_PERIODE"].value == "2"
    assert found["JOBLENS_BASE_CGROUP"].value == ""
    assert condor_config.parse_dump("") == {} and condor_config.parse_dump(" # at: nowhere\n") == {}


def test_config_shows_every_knob_and_what_is_wrong(condor, capsys):
    assert main.main(["config"]) == 1
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines[1 : len(knobs.KNOBS) + 1]]
    assert named == [knob.name for knob in knobs.KNOBS]
    (jobs,) = (line for line in lines if line.startswith("JOBLENS_MAX_JOBS "))
    assert "/etc/condor/config.d/60-site.conf, line 7" in jobs and jobs.endswith("64 (jobs; default 1024)")
    (period,) = (line for line in lines if line.startswith("JOBLENS_PERIOD "))
    assert period.split()[1:3] == ["default", "1"], "a wrong value is not in force"
    assert "! JOBLENS_PERIOD = banana is not a number from 0.1 to 60" in "\n".join(lines)
    assert "did you mean JOBLENS_PERIOD?" in "\n".join(lines)


def test_config_without_htcondor_shows_the_defaults_and_says_so(monkeypatch, capsys):
    def missing(*_):
        raise errors.JobLensError("condor_config_val is not in the PATH: is HTCondor installed on this machine?")

    monkeypatch.setattr(condor_config, "ask", missing)
    assert main.main(["config", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["Problems"]) == 1 and "not in the PATH" in printed["Problems"][0]
    ours = printed["Knobs"][: len(knobs.KNOBS)]
    assert [knob["Value"] for knob in ours] == [knob.default for knob in knobs.KNOBS]
    sinks = {knob["Name"] for knob in printed["Knobs"][len(knobs.KNOBS) :]}
    assert "JOBLENS_SINK_PROMETHEUS_ADDRESS" in sinks, "of the sink that is there by default"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_metrics_shows_every_one_within_the_width(width):
    lines = metrics.lines(Style(width))
    assert max(map(len, lines)) <= width
    starts = [line.split()[0] for line in lines if line.strip()]
    assert all(metric.pattern in starts for metric in METRICS)
