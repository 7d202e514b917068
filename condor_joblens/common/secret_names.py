"""Names behind which a secret stands in a command line: options, variables, headers, and what single programs take."""

from __future__ import annotations

import re
from typing import NamedTuple

_STEMS = (
    *("token", "secret", "passw", "passphrase", "pwd", "credential", "cookie", "bearer", "authorization"),
    *("authorisation", "proxy", "session", "signature", "apikey", "privatekey", "accesskey"),
)
"""A name with one of these in it is that of a secret."""

_WORDS = frozenset({"pass", "pw", "auth", "authz", "authn", "sig", "key", "cred", "creds", "tok", "otp", "jwt", "sas"})
"""So is one of which this is a whole word: db-pass, sslkey.auth."""

_ENDS = ("pass", "key", "auth")
"""And one whose word ends so: sshpass, sshkey, npmAuth."""

_HARMLESS = frozenset(
    {
        *("bypass", "compass", "lowpass", "highpass", "bandpass", "multipass", "overpass", "trespass", "monkey"),
        *("turkey", "hotkey", "keyboard", "tokenizer", "tokenize", "tokens", "passwordless"),
    }
)
_QUALIFIED = frozenset({"sort", "primary", "foreign", "partition", "group", "join", "no", "max", "num", "min", "by"})
"""Words that make a name harmless: sort-key, no-auth, max_token."""

_PLACES = ("file", "path", "dir", "_log", "x509_user_proxy")
"""A name with one of these in it says where a secret lies, not what it is."""

_SEPARATORS = re.compile(r"[_.\-]")


def is_secret(name: str) -> bool:
    """Whether what is given under this name is a secret."""
    lower = name.strip("-").lower()
    words = _SEPARATORS.split(lower)
    if _QUALIFIED.intersection(words) or _HARMLESS.intersection(words):
        return False
    if any(stem in lower for stem in _STEMS):
        return True
    return any(word in _WORDS or word.endswith(_ENDS) for word in words)


def is_place(name: str) -> bool:
    """Whether the name says where a secret lies."""
    lower = name.lower()
    return any(place in lower for place in _PLACES)


class Program(NamedTuple):
    """Options of a program whose value is a secret."""

    letters: str = ""  # with the value in the same word or the next
    words: tuple[str, ...] = ()  # with the value in the next word
    login: str = ""  # letters that count only once this program's `login` or the like has been named
    last: str = ""  # with this option the last argument is a secret
    taking: str = ""  # other letters that take a value: in -xyz, what is behind them is that value
    account: bool = False  # an argument USER/PASSWORD@PLACE


_MYSQL, _LDAP, _MONGO = Program("p"), Program("w"), Program("p", ("-p",))
_CURL = Program("uUb", ("--user", "--proxy-user", "--oauth2-bearer", "--pass"), taking="oHdXAceFKmrTwxyYzCDEQtP")

PROGRAMS = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump"), _MYSQL),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami", "ldappasswd"), _LDAP),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"), _MONGO),
    **dict.fromkeys(("sshpass", "7z", "7za", "7zr", "twine", "ncftpget", "ncftpput"), Program("p")),
    **dict.fromkeys(("zip", "unzip", "ipmitool", "sqlcmd", "bcp"), Program("P")),
    **dict.fromkeys(("docker", "podman", "buildah", "helm", "az", "oc", "nerdctl", "crane"), Program(login="p")),
    **dict.fromkeys(("sqlplus", "sqlldr", "rman", "expdp", "impdp"), Program(account=True)),
    **dict.fromkeys(("snmpget", "snmpwalk", "snmpset", "snmpbulkwalk"), Program("AX")),
    "curl": _CURL,
    "lftp": Program("u"),
    "smbclient": Program("U"),
    "redis-cli": Program("a"),
    "openssl": Program(words=("-passin", "-passout", "-pass", "-k", "-K")),
    "htpasswd": Program(last="-b"),
}
"""Programs by name."""

LOGINS = frozenset({"login"})

PAIRS = frozenset({"--user", "--userpwd", "--proxy-user", "--username", "--http-user"})
"""Options of any program whose value USER:PASSWORD is a secret; without a colon it is a name."""

PREFIXES = (
    *("glpat-", "glptt-", "gldt-", "glrt-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "npm_"),
    *("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "sk-", "sk_live_", "sk_test_", "rk_live_"),
    *("AKIA", "ASIA", "AIza", "ya29.", "pypi-", "dop_v1_", "SG.", "hvs.", "hvb.", "dckr_pat_", "shpat_", "whsec_"),
    *("EAAC", "AGE-SECRET-KEY-", "lin_api_", "sntrys_", "phc_", "glsa_", "PMAK-", "sq0atp-", "dapi", "tfp_"),
    *("hooks.slack.com/services/", "discord.com/api/webhooks/", "api.telegram.org/bot"),
)
"""What tokens of well-known services begin with."""

_SIGNS = (
    *(
        "tok",
        "secret",
        "pass",
        "pwd",
        "pw",
        "cred",
        "cookie",
        "bearer",
        "basic",
        "digest",
        "negotiate",
        "auth",
        "proxy",
    ),
    *("proxy", "session", "sig", "key", "@", "eyj", "--user", "--http-user", "otp", "jwt", "sas", "begin ", "login"),
    *("sqlplus", "sqlldr", "rman", "expdp", "impdp"),
    *(name for name, program in PROGRAMS.items() if not (program.login or program.account)),
    *PREFIXES,
)

SIGNS = tuple(sign.encode() for sign in _SIGNS)
"""Whatever may hold a secret has one of these in it, or a long run of letters and digits; most commands do not."""
