"""`joblens staff FILE --verbs ps,log`: a key for one of the site's staff, and the line about it for the nodes."""

from __future__ import annotations

import argparse
import json
import os
import pwd

from condor_joblens.cli.staff_warrants import KEY
from condor_joblens.common.errors import JobLensError
from condor_joblens.control.keys import key_at, public_half, text_of
from condor_joblens.control.staff import parse_staff


def run(options: argparse.Namespace) -> int:
    """Makes the key if the file is missing, and tells the line; exit code 0. Raises JobLensError."""
    name = options.name or pwd.getpwuid(os.geteuid()).pw_name
    which = [f"{what}={value}" for what, value in (("user", options.user), ("job", options.job)) if value]
    try:
        words = [name, "ed25519:" + "A" * 43 + "=", options.verbs, *which]
        parse_staff(" ".join(words))  # what no node would take is refused before a key is made
        words[1] = text_of(public_half(key_at(options.file)))
    except ImportError:
        raise JobLensError("the Python package cryptography is missing here: make install EXTRAS=relay") from None
    line = " ".join(words)
    if options.json:
        print(json.dumps({"File": options.file, "Line": line}))
        return 0
    print(f"for JOBLENS_STAFF_KEYS on the nodes: {line}")
    print(f"to ask by it:                        {KEY}={options.file} joblens ps 12.0")
    return 0
