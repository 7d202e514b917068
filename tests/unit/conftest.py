"""What holds for all tests of this layer: none of them fails because the machine is busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
