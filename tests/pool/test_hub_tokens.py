"""Whose a token of HTCondor is, a real schedd says, to a hub that is any user, and one that could say it itself."""

from __future__ import annotations

import json
import time
from typing import Any

from harness import OLDEST, Pool

SOURCE = "/usr/src/condor_joblens"
WHOSE = """
import json, sys
from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.condor_tokens import CondorSettings, CondorTokens
asked = json.load(sys.stdin)
try:
    print(json.dumps({"who": CondorTokens(CondorSettings(asked["schedd"], "", sys.executable)).whose(asked["token"])}))
except JobLensError as error:
    print(json.dumps({"kind": type(error).__name__, "why": str(error)}))
"""


def whose(pool: Pool, token: str, user: str = "bob", schedd: str = "") -> dict[str, Any]:
    """As a hub of this user on the access point is told."""
    given = json.dumps({"token": token, "schedd": schedd})
    environment = ["env", f"PYTHONPATH={SOURCE}", "PYTHONDONTWRITEBYTECODE=1"]
    done = pool.run(*environment, "python3", "-c", WHOSE, user=user, input=given)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_token_is_whose_the_schedd_says_and_a_forged_one_nobodys(pool: Pool) -> None:
    token = pool.run("condor_token_fetch", "-authz", "READ", "-lifetime", "300", user="alice").stdout.strip()
    if pool.suite == OLDEST:
        said = whose(pool, token)
        assert said["kind"] == "ScheddGone" and "too old to ask" in said["why"], "it says so, and takes none"
        return
    domain = pool.run("condor_config_val", "TRUST_DOMAIN").stdout.strip()
    for user in ("bob", "root"):  # root has the key and other ways to be believed
        assert whose(pool, token, user) == {"who": f"alice@{domain}"}
    head, body, mac = token.split(".")
    forged = f"{head}.{body}.{'A' if mac[0] != 'A' else 'B'}{mac[1:]}"
    for user in ("bob", "root"):
        assert whose(pool, forged, user)["kind"] == "TokenRefused"
    of_another = pool.run("condor_token_create", "-identity", "alice@elsewhere", "-authz", "READ").stdout.strip()
    assert whose(pool, of_another) == {"who": "alice@elsewhere"}, "its domain is part of who it is"
    short = pool.run("condor_token_create", "-identity", f"alice@{domain}", "-lifetime", "1").stdout.strip()
    time.sleep(2)
    assert whose(pool, short)["kind"] == "TokenRefused", "it is over"
    name = pool.run("condor_config_val", "FULL_HOSTNAME").stdout.strip()
    assert whose(pool, token, schedd=name) == {"who": f"alice@{domain}"}
    assert whose(pool, token, schedd="nowhere")["kind"] == "ScheddGone"
