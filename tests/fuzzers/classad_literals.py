"""The plain literals of a job's ad, whose parser must survive what the policy child may not."""

from __future__ import annotations

from condor_joblens.policy.job_identity import MAX_STRING, NUMBERS, STRINGS, literals

SEEDS = [
    b'GlobalJobId = "ap#12.0#1700000000"\nOwner = "alice"\nClusterId = 12\nProcId = 0\nCmd = "/home/alice/run.sh"\n',
    b'RequestCpus = 4\r\n\trequestmemory=2048\nJobLensNote = "a note"\nCheckpointExitCode = 8589934592\n',
]
WORDS = [name.encode() + b" = " for name in (*STRINGS, *NUMBERS)]


def check(data: bytes) -> None:
    """What is found is of a known name, printable and within its bounds."""
    for name, value in literals(data).items():
        if name in STRINGS:
            assert isinstance(value, str) and value.isprintable() and len(value) <= MAX_STRING
        else:
            lowest, highest = NUMBERS[name]
            assert isinstance(value, int) and lowest <= value <= highest
