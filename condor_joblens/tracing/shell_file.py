"""Where in a bash its commands can be seen: functions and variables that it exports. The file is the job's."""

from __future__ import annotations

from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.tracing.exits import Place, Unreadable
from condor_joblens.tracing.functions import Found, Function

COMMAND, SHELL_END = 6, 7  # enum traced_kind of joblens_trace.h
EXECUTES, ENDS = "execute_command_internal", ("exit_shell", "subshell_exit", "sh_exit")
"""A shell goes through one of those that end it, and its compiler may have put the last one into the others."""

VARIABLES = "last_command_exit_value", "running_trap", "breaking", "continuing", "dollar_vars"
"""In the order of struct traced_shell. Without the first one nothing can be said of how a command ended."""

_X86_64 = 62
_LOCK = 0xF0
_MOST_DISTANCE = 1 << 31


def find(elf: Elf) -> Found:
    """Raises ElfError for a file that is none, and Unreadable for one in which no commands can be seen."""
    if elf.machine != _X86_64:
        raise Unreadable("is for another kind of machine than x86-64")
    places = elf.places((EXECUTES, *ENDS, *VARIABLES))
    missing = [name for name in (EXECUTES, *ENDS, VARIABLES[0]) if name not in places]
    if missing:
        raise Unreadable(
            f"has no name {missing[0]}, as a bash has that can load builtins: its commands are not seen, the programs "
            "that it starts are"
        )
    first = places[EXECUTES]
    offset, code = elf.code(first, 1)
    ends = [elf.code(places[name], 1) for name in ENDS]
    if _LOCK in (code[0], *(at_end[0] for _, at_end in ends)):
        raise Unreadable("begins a function with an instruction that can't be probed")
    variables = _beside_each_other([places[name] - first if name in places else 0 for name in VARIABLES])
    distances = [at - offset for at, _ in ends]
    if any(abs(each) >= _MOST_DISTANCE for each in (*distances, *variables)):
        raise ElfError("parts that are too far apart")
    probes = Place(0, COMMAND), *(Place(each, SHELL_END) for each in distances)
    return Found([Function(EXECUTES, offset, 1, (0, 0), probes, variables=variables)])


def _beside_each_other(distances: list[int]) -> tuple[int, ...]:
    """In the order of struct traced_shell: two flags of four bytes that lie together are read together."""
    status, trap, breaking, continuing, script = distances
    if breaking and continuing and abs(breaking - continuing) == 4:
        return status, trap, 0, 0, script, min(breaking, continuing)
    return status, trap, breaking, continuing, script, 0
