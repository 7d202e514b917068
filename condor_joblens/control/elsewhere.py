"""What a command and the relay that it starts for somebody elsewhere (relay/elsewhere.py) agree on."""

from __future__ import annotations

MODULE = "condor_joblens.relay.elsewhere"

DOOR_NAME, RELAY_NAME = "door.sock", "relay.sock"
"""Its sockets, in the folder that it is given."""

READY = "ready"
"""The line that it says when it is connected."""
