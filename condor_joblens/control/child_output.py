"""What a child says that has become a job's owner: messages of one byte, their kind, and what belongs to it.

The child may be in the hands of the job. So joblensd only passes the messages on, and whoever shows them escapes them.
"""

CONTENT = b"="
"""What was asked for: bytes of a file, or a JSON object."""

NOTICE = b"!"
"""A sentence about what follows, in UTF-8."""

SOURCE = b">"
"""Of which file the CONTENT is that follows, in UTF-8."""

FAILED = b"?"
"""Why there is no more, in UTF-8. It is the last message."""

WHOLE = b"."
"""That was all. It is the last message, and empty."""

MOST = 60_000
"""Bytes of a message, its kind included."""
