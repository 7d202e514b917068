"""The script by which bash completes `joblens`: made from the parser of its arguments, and asks no Python at a key."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from condor_joblens.cli.main import parser

JOB = ("id", "ids", "job")
"""What the parser calls an argument that names a job."""

_SCRIPT = r"""# Made by `python -m condor_joblens.cli.reference docs/` from the arguments of joblens.
# bash completes verbs, options and the ids of running jobs by it: bash-completion finds it by its name.

# The ids of your jobs that run, from this machine's queue; else of those on this node.
_joblens_jobs() {
    local found
    found=$(timeout 3 condor_q -constraint 'JobStatus == 2' -format '%d.' ClusterId -format '%d\n' ProcId 2>/dev/null)
    if [ -z "$found" ]; then
        found=$(timeout 3 joblens status --json 2>/dev/null | sed -n 's/.*"JobId": "\([0-9.]*\)".*/\1/p')
    fi
    printf '%s\n' "$found"
}

_joblens() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    local words='' options='' values='' first='' place=0 at
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '@VERBS@ --help --version' -- "$word")
        return
    fi
    case $verb in
@ARGUMENTS@
    *) return ;;
    esac
    case "$verb $before" in
@CHOICES@
    esac
    if [ -z "$words" ]; then
        case " $values " in *" $before "*) return 1 ;; esac # a value: a file, say
        for ((at = 2; at < COMP_CWORD; at++)); do
            case " $values " in *" ${COMP_WORDS[at - 1]} "*) continue ;; esac
            case ${COMP_WORDS[at]} in -*) ;; *) place=$((place + 1)) ;; esac
        done
        case $word in
        -*) words=$options ;;
        *)
            [ "$place" -eq 0 ] || return 1
            words=$first
            [ "$first" != JOB ] || words=$(_joblens_jobs)
            ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    [ "${#COMPREPLY[@]}" -gt 0 ]
}

complete -o bashdefault -o default -F _joblens joblens
"""


def script() -> str:
    """The script, as a text."""
    verbs = _subparsers(parser())
    arguments = [_arguments(name, command) for name, command in verbs.items()]
    choices = [line for name, command in verbs.items() for line in _choices(name, command)]
    made = _SCRIPT.replace("@VERBS@", " ".join(verbs)).replace("@ARGUMENTS@", "\n".join(arguments))
    return made.replace("@CHOICES@", "\n".join(choices))


def _subparsers(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Those of its verbs or actions, by name."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _actions(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """Its own arguments, and those of its actions."""
    return [*command._actions, *(each for part in _subparsers(command).values() for each in part._actions)]


def _arguments(name: str, command: argparse.ArgumentParser) -> str:
    """The case of a verb: its options, those that have a value, and what comes first of the rest."""
    given = [action for action in _actions(command) if action.option_strings]
    options = _joined(option for action in given for option in action.option_strings)
    values = _joined(option for action in given if action.nargs != 0 for option in action.option_strings)
    rest = next((action for action in command._actions if not action.option_strings), None)
    first = ""
    if rest is not None and rest.dest in JOB:
        first = "JOB"
    elif rest is not None and rest.choices:
        first = " ".join(map(str, rest.choices))
    return f"    {name}) options='{options}' values='{values}' first='{first}' ;;"


def _choices(name: str, command: argparse.ArgumentParser) -> Iterable[str]:
    """The cases of the options whose values are known."""
    for action in _actions(command):
        if action.option_strings and action.choices:
            cases = " | ".join(f"'{name} {option}'" for option in action.option_strings)
            yield f"    {cases}) words='{' '.join(map(str, action.choices))}' ;;"


def _joined(words: Iterable[str]) -> str:
    return " ".join(sorted(set(words)))
