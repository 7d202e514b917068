"""Command lines without secrets: what is hidden, what is kept, and that neither length nor bytes can break a line."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.redact import HIDDEN, WITHHELD, Redactor, command_line

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


def joined(*arguments: str) -> bytes:
    return b"\0".join(argument.encode() for argument in arguments) + b"\0"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["run", "--password", "hunter2", "x"], "run --password *** x"),
        (["run", "--password=hunter2"], "run --password=***"),
        (["run", "--api-key", "hunter2"], "run --api-key ***"),
        (["run", "-token", "hunter2"], "run -token ***"),
        (["env", "DB_PASSWD=hunter2", "make"], "env DB_PASSWD=*** make"),
        (["env", "GITHUB_TOKEN=hunter2"], "env GITHUB_TOKEN=***"),
        (["env", "AWS_SECRET_ACCESS_KEY=hunter2"], "env AWS_SECRET_ACCESS_KEY=***"),
        (["env", "HTTP_PROXY=hunter2"], "env HTTP_PROXY=***"),
        (["env", "CREDENTIALS=hunter2"], "env CREDENTIALS=***"),
        (["sh", "-c", "PASSWORD='hunter2 and more' job"], "sh -c PASSWORD='***' job"),
        (["sh", "-c", "mysql -uroot -phunter2 -h db"], "sh -c mysql -uroot -p*** -h db"),
        (["mysql", "-p", "hunter2"], "mysql -p ***"),
        (["/usr/bin/sshpass", "-phunter2", "ssh", "host"], "/usr/bin/sshpass -p*** ssh host"),
        (["curl", "-u", "me:hunter2", "https://host"], "curl -u *** https://host"),
        (["\\curl", "-u", "me:hunter2"], "\\curl -u ***"),
        (["job", "--user=me:hunter2"], "job --user=***"),
        (["job", '--user="me:hunter2"'], 'job --user="***"'),
        (["curl", "-H", "Authorization: Bearer hunter2"], None),
        (["curl", "-H", "X-Auth-Token: hunter2"], None),
        (["curl", "-d", '{"password": "hunter2", "n": 1}'], 'curl -d {"password": "***", "n": 1}'),
        (["curl", "https://me:hunter2@host/path?x=1"], "curl https://***@host/path?x=1"),
        (["curl", "https://host/path?sig=1&access_token=hunter2&n=1"], None),
        (["htpasswd", "-b", "file", "me", "hunter2"], "htpasswd -b file me ***"),
        (["openssl", "enc", "-k", "hunter2"], "openssl enc -k ***"),
        (["job", JWT], "job ***"),
        (["job", "0123456789abcdef" * 2], "job ***"),
        (["job", base64.b64encode(bytes(range(30, 78))).decode()], "job ***"),
    ],
)
def test_secrets_are_hidden(arguments: list[str], shown: str | None) -> None:
    line = command_line(joined(*arguments))
    assert "hunter2" not in line and HIDDEN in line
    assert shown is None or line == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["xrdcp", "root://eos.cern.ch//eos/file.root", "."],
        ["podman", "run", "--user=1000:1000", "image"],
        ["env", "X509_USER_PROXY=/tmp/x509up_u500", "job"],
        ["job", "--key-file", "/etc/grid-security/hostkey.pem", "-p", "8080"],
        ["job", "user.jdoe.mc23_13p6TeV.801168.Py8EG_A14NNPDF23LO_jj_JZ3_deriv_DAOD_PHYS.e8514_s4162_r14622_p5855"],
        ["/cvmfs/sft.cern.ch/lcg/views/LCG_104/x86_64-centos7-gcc11-opt/bin/python3", "keyboard.py"],
        ["gcc", "-O2", "-c", "src/passage.c", "-o", "build/passage.o"],
    ],
)
def test_what_is_no_secret_is_shown(arguments: list[str]) -> None:
    assert command_line(joined(*arguments)) == " ".join(arguments)


@given(st.text(string.ascii_letters + string.digits, min_size=6, max_size=40), st.sampled_from(["=", " "]))
def test_the_value_of_a_secret_looking_option_is_never_shown(secret: str, between: str) -> None:
    secret = f"q7{secret}"
    for name in ("--password", "--auth-token", "--client_secret", "--s3-access-key"):
        arguments = [f"{name}={secret}"] if between == "=" else [name, secret]
        assert secret not in command_line(joined("job", *arguments))
        assert secret not in command_line(joined("sh", "-c", f"job {name}{between}{secret} next"))


def test_the_last_word_of_a_command_that_goes_on_is_not_shown() -> None:
    secret = "abcDEF123"
    head = joined("job", "x" * 300, secret)[:256]
    assert command_line(head, cut=True).endswith("...") and "xxx" not in command_line(head, cut=True)


def test_when_the_time_is_up_nothing_is_shown() -> None:
    clock = iter([0.0, 0.5, 1.0, 1.5])
    redactor = Redactor(1.0, lambda: next(clock))
    lines = [redactor.line(joined("/usr/bin/job", "--token", f"hunter{n}")) for n in range(3)]
    assert lines == ["/usr/bin/job --token ***", "/usr/bin/job --token ***", WITHHELD]
