"""Where a function ends: its machine code is read, and nothing else of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError

MOST_BYTES = 1 << 20
"""Of the code of one function that is read."""

ENTRY, RETURN, LEAVE, JUMP = 0, 1, 2, 3  # enum traced_kind of joblens_trace.h
NO_REGISTER = 255

_WORDS = {
    "r15": 0, "r14": 1, "r13": 2, "r12": 3, "rbp": 4, "rbx": 5, "r11": 6, "r10": 7, "r9": 8, "r8": 9, "rax": 10,
    "rcx": 11, "rdx": 12, "rsi": 13, "rdi": 14, "rip": 16, "rsp": 19,
}  # fmt: skip
"""struct pt_regs, in words."""

_LOCK = 0xF0
_ENDBR64, _NOP = bytes.fromhex("f30f1efa"), b"\x90"
_PUSHES = {bytes([0x50 + register]) for register in range(8)}


class Unreadable(JobLensError):
    """Why calls of a function can't be told, for people."""


@dataclass(frozen=True)
class Place:
    """One probe: how far from the function's start; of a jump to what is in a register or in memory, where that is."""

    distance: int
    kind: int
    base: int = NO_REGISTER
    index: int = NO_REGISTER
    scale: int = 0
    is_memory: bool = False
    displacement: int = 0


@dataclass(frozen=True)
class Piece:
    """A part of a function's code, and how far from the function's start it is."""

    distance: int
    code: bytes


def places(main: Piece, cold: Piece | None = None) -> list[Place]:
    """The entry of a function and its exits; `cold` is what the compiler has put elsewhere of it.

    Raises Unreadable if they can't be told without doubt, and JobLensError if no disassembler is installed.
    """
    pieces = [main] if cold is None else [main, cold]
    if sum(len(piece.code) for piece in pieces) > MOST_BYTES:
        raise Unreadable("is too long")
    if not main.code:
        raise Unreadable("has no length in the file")
    found, starts, targets = list[Place](), set[int](), set[int]()
    for piece in pieces:
        found += _exits(piece, pieces, starts, targets)
    found.insert(0, Place(_entry(main.code, targets), ENTRY))
    # a probe within an instruction would change what it does
    if not targets <= starts:
        raise Unreadable("has jumps into its instructions: there may be data among its code")
    for place in found:
        if _first_byte(place, pieces) == _LOCK:
            raise Unreadable("has an instruction with a lock where a probe has to be")
    return found


def _entry(code: bytes, targets: set[int]) -> int:
    """Where the entry's probe costs least: the kernel emulates a push or a nop, and steps over all else for 3 us more.

    So one behind endbr64 is taken, which changes no register, unless a jump within the function goes there.
    """
    after = code[len(_ENDBR64) : len(_ENDBR64) + 2]
    if not code.startswith(_ENDBR64) or len(_ENDBR64) in targets:
        return 0
    is_push = after[:1] in _PUSHES or (after[:1] == b"\x41" and after[1:] in _PUSHES)
    return len(_ENDBR64) if is_push or after[:1] == _NOP else 0


def entry_alone(code: bytes) -> list[Place]:
    """The entry of a function whose exits are of no use. Raises Unreadable."""
    if not code:
        raise Unreadable("has no length in the file")
    found = Place(0, ENTRY)
    if _first_byte(found, [Piece(0, code)]) == _LOCK:
        raise Unreadable("has an instruction with a lock where a probe has to be")
    return [found]


def _exits(piece: Piece, pieces: Sequence[Piece], starts: set[int], targets: set[int]) -> list[Place]:
    """The exits of one piece. Where its instructions begin, and where its jumps go within the function, is added."""
    try:
        import capstone
        from capstone import x86
    except ImportError:
        raise JobLensError("no disassembler is installed: install the extra `trace` (capstone)") from None
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    machine.detail = True
    found: list[Place] = []
    end = 0
    for instruction in machine.disasm(piece.code, 0):
        end = instruction.address + instruction.size
        distance = piece.distance + instruction.address
        starts.add(distance)
        if instruction.group(capstone.CS_GRP_RET) or instruction.group(capstone.CS_GRP_IRET):
            found.append(Place(distance, RETURN))
        elif instruction.group(capstone.CS_GRP_JUMP):
            operand = instruction.operands[0]
            if operand.type == x86.X86_OP_IMM:
                target = piece.distance + _signed(operand.imm)
                if target == 0:
                    raise Unreadable("begins with what it repeats: its calls can't be told from its rounds")
                if any(each.distance <= target < each.distance + len(each.code) for each in pieces):
                    targets.add(target)
                    continue
                if instruction.id != x86.X86_INS_JMP:
                    raise Unreadable("is left by a conditional jump")
                found.append(Place(distance, LEAVE))
            else:
                found.append(_jump(distance, instruction, operand))
    if end != len(piece.code):
        raise Unreadable("has code that can't be read")
    return found


def _jump(distance: int, instruction: object, operand: object) -> Place:
    """A jump to what is in a register or in memory."""
    from capstone import x86

    name = instruction.reg_name  # type: ignore[attr-defined]
    if operand.type == x86.X86_OP_REG:  # type: ignore[attr-defined]
        return Place(distance, JUMP, base=_word(name(operand.reg)))  # type: ignore[attr-defined]
    memory = operand.mem  # type: ignore[attr-defined]
    if memory.segment:
        raise Unreadable("jumps to an address of its thread")
    base = _word(name(memory.base)) if memory.base else NO_REGISTER
    index = _word(name(memory.index)) if memory.index else NO_REGISTER
    is_relative = base == _WORDS["rip"]
    displacement = memory.disp + (instruction.size if is_relative else 0)  # type: ignore[attr-defined]
    if not -(1 << 31) <= displacement < 1 << 31:
        raise Unreadable("jumps too far")
    return Place(distance, JUMP, base, index, memory.scale, True, displacement)


def _word(name: str) -> int:
    if name not in _WORDS:
        raise Unreadable("jumps to an address of 32 bits")
    return _WORDS[name]


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _first_byte(place: Place, pieces: Sequence[Piece]) -> int:
    for piece in pieces:
        within = place.distance - piece.distance
        if 0 <= within < len(piece.code):
            return piece.code[within]
    raise Unreadable("has code that can't be read")
