"""One child from its start until its policies are loaded: what serves joblensd, and what stands by."""

from __future__ import annotations

import time
from collections.abc import Sequence

from condor_joblens.policy import policy_answers
from condor_joblens.policy.child_frames import BadFrame, Message, pack
from condor_joblens.policy.child_process import ChildProcess, Start

CHILD = "the policy child"  # blamed where neither an ad nor a policy is
THE_AD = "the job's ad"  # blamed until the child says that it does something else


class PolicyChild:
    """A started child. It loads the policies, is `ready` then, and ends when its process does."""

    def __init__(self, policies: Sequence[tuple[str, str]], paths: Sequence[str], start: Start | None = None) -> None:
        """Starts the process and sends it (name, text) of the policies, and the paths of a round's numbers.

        `start` starts it if this process may not. Raises OSError.
        """
        self.process = ChildProcess(start=start)
        self.started_at = time.monotonic()
        self.ready = False
        self.loading = CHILD  # what it is doing as long as it is not ready
        self.fault = ""  # why it is being ended
        self.errors: list[str] = []  # a line for each policy with a mistake, when it is ready
        self.process.send(pack({"verb": "policies", "policies": list(policies), "usage": list(paths)}))

    def take_early(self, message: Message) -> None:
        """A message of a child that is not ready yet. Raises BadFrame."""
        verb = message.get("verb")
        if verb == "ready":
            self.errors = [str(error) for error in policy_answers.failures(message)]
            self.ready = True
        elif verb == "doing":
            self.loading = policy_answers.doing(message)
        elif verb == "unfit":
            self.fault = policy_answers.unfit(message)
        else:
            raise BadFrame("an unknown verb")

    def end(self, fault: str) -> None:
        """Kills it for this fault; its process is gone some time later."""
        self.fault = fault
        if self.process.connected:
            self.process.kill()
