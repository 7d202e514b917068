"""Prints policies and triggers of this node as JSON: `print_policies COMMAND...`. joblensd can't read root's own.

COMMAND prints HTCondor's configuration. That alone says which folders are read, and not who asks.
"""

from __future__ import annotations

import json
import subprocess
import sys

from condor_joblens.common.condor_config import parse_dump, values
from condor_joblens.common.config_parser import parse
from condor_joblens.policy.policy_files import Policies, read_policies, read_triggers


def main(command: list[str]) -> int:
    """Prints them in one line; the exit code is that of the command."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        config = parse(values(parse_dump(done.stdout.decode("utf-8", "replace"))))[0]
        print(json.dumps([read_policies(config.policy_dir), read_triggers(config.triggers)]))
    return done.returncode


def parsed(line: str, triggers: bool = False) -> Policies:
    """What has been printed: the policies, or the triggers. Raises ValueError or TypeError."""
    of_policies, of_triggers = json.loads(line)
    policies, problems = of_triggers if triggers else of_policies
    return [(str(name), str(text)) for name, text in policies], [str(problem) for problem in problems]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
