"""What holds for the tests of all layers."""

from __future__ import annotations

import signal

# What a shell starts in the background ignores these two, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
