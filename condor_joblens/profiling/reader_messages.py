"""What joblensd and its reader of samples say to each other: packets, the first byte of which says what it is.

The reader has no right to call bpf(2). It asks joblensd to make tables and to put them in their place, and fills those
that can be mapped itself.
"""

from __future__ import annotations

import struct

# from joblensd
RING = 1  # _RING, with descriptors: the ring, the slots' counts, addresses whose names are asked for
BEGIN = 2  # NEW_RUN: it is sampled from now on
END = 3  # END_OF: it is not sampled any more: its last window closes
CLOSE = 14  # RUN: its window closes now, and another one begins
REPORT = 20  # REPORT_OF, with descriptors of all that was kept of a run: what of it is for the job's own folder
REFUSED = 23  # REFUSED_OF: that part of a run could not be kept
PING = 4
MERGE = 16  # MERGE_OF, with descriptors of two files that were kept of a run: they are to become one
# both ways: a question, and its answer
ROWS = 5  # ROWS_OF: a table for the rows of a file; the answer has its descriptor, or none
OPENER = 6  # NUMBER: a run; the answer has the socket of a child that is the owner of the job, or none
NAMES = 7  # the kernel's names of addresses; the answer has a descriptor to read them from, or none
# from the reader
PUT = 8  # FILE: its rows are in their table
DROP = 9  # FILE: its rows are not needed any more
MAPPINGS = 10  # struct process_key, and its mappings
FORGET = 11  # struct process_key
WINDOW = 12  # WINDOW_HEAD, and a part of what is to be kept
PONG = 13
REPORTED = 19  # MERGED_HEAD, and a part of what REPORT has asked for; nothing if it can't be had
MERGED = 17  # MERGED_HEAD, and a part of what MERGE has asked for; nothing if it can't be had
CRASH = 18  # CRASH_HEAD, as many bytes of words, and what is to be kept
STEADY = 21  # STEADY_OF: since when a run has computed in the same places; 0: in others
SEEN = 22  # SEEN_OF: a window has closed, even if there is nothing to keep
ENDED = 24  # NUMBER: all that is kept of a run that is not sampled any more has been told
OPENED = 25  # OPEN_FILE: it has the file open; or has closed it, if its number is 0
PYTHON = 15  # struct process_key, and what its Python is: struct python_process

RING_SIZES = struct.Struct("<QII")  # bytes of the ring, slots, samples a second
RUN = struct.Struct("<QI")  # its number, its slot
SAMPLED_BYTES = 56  # struct sampled: what the kernel has counted
NEW_RUN = struct.Struct(f"<QId{SAMPLED_BYTES}s")
# its number, its slot, since when nobody has looked (Unix time; 0: nothing was before), and what was counted until then
END_OF = struct.Struct(f"<QId{SAMPLED_BYTES}s")  # its number, its slot, when that was (Unix time), and what was counted
REFUSED_OF = struct.Struct("<Qd?")  # the run, from when the part was, and whether it was of what has waited
SEEN_OF = struct.Struct(f"<QdQ{SAMPLED_BYTES}s")
# the run, until when, how many samples were lost with an earlier reader, and what the kernel had counted
NUMBER = struct.Struct("<Q")
ROWS_OF = struct.Struct("<II")  # the file's number, rows
FILE = struct.Struct("<I")
WINDOW_HEAD = struct.Struct("<Qdd??")  # run, from and until when (Unix time), whether off the CPU, and the last part
STEADY_OF = struct.Struct("<Qdd")  # the run, since and until when (Unix time)
MERGE_OF = struct.Struct("<QI")  # the run, and at which byte of the files their content begins
MERGED_HEAD = struct.Struct("<QB")  # the run, whether this is the last part
CRASH_HEAD = struct.Struct("<QIIdH")  # run, tgid (struct process_key), signal, when (Unix time), bytes of words
REPORT_OF = struct.Struct("<QI")  # as MERGE_OF; the job's id and the node's name follow, with a 0 between
PROCESS_KEY = struct.Struct("<IIQ")  # tgid, exec, start: struct process_key
MAPPING = struct.Struct("<QQQII")  # start, end, offset, file, 0: struct code_mapping

OPEN_FILE = struct.Struct("<QQIII")  # run (0: any), inode, device, 0: struct open_file; and its number
FILE_KEY_BYTES = 24  # of struct open_file

PYTHON_PROCESS = struct.Struct("<Q23I4x")  # head, and offsets: struct python_process

MOST_BYTES = 150_000
"""Of a packet."""

MOST_MAPPINGS = (MOST_BYTES - 64) // MAPPING.size
"""Of a process, as Process.mappings has them; what lies in others is unwound by frame pointers."""

MOST_GIVEN = 128
"""Descriptors with a packet."""

PART_BYTES = 60_000
MOST_WINDOW_BYTES = 4 << 20
MOST_REPORT_BYTES = 2 << 20
MOST_FILES = 4000
MOST_PROCESSES = 4000
"""Entries of the tables in the kernel (profile/unwind.bpf.h)."""
