"""Bash scripts that use what a tracer could disturb do the same when they are traced."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from ground import until
from test_traced_commands import BASH, begun, links, open_folder, script
from traced_jobs import SECONDS, Traces

from condor_joblens.profiles import traced_commands
from condor_joblens.tracing import standing_messages as messages

__all__ = ["open_folder"]

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="commands are traced on x86-64 alone"),
]

SCRIPTS = {
    "traps": """
f() { trap 'echo returns' RETURN; false; return 3; }
trap 'echo "debug $BASH_COMMAND $LINENO"' DEBUG
trap 'echo "error $? $BASH_COMMAND"' ERR
trap 'echo "exit $?"' EXIT
trap 'echo signal' USR1
f
echo "status $?"
kill -USR1 $$
(exit 4)
! false
exit 6
""",
    "set -e": """
set -euo pipefail
x=$(echo one)
true | cat | wc -c
false || echo caught
f() { false; echo goes on; }
if f; then echo "$x ${none:-default}"; fi
sleep 0.01 | false
echo never
""",
    "set -u": 'set -u\necho before\necho "$none"\necho never\n',
    "here-documents": """
cat <<A; cat <<'B'; cat <<-C
a $((1+2)) $(echo sub) `echo old`
A
b $x
B
	tab
	C
cat <<< "a string"
while read -r word; do echo "[$word]"; done < <(printf '1\\n2\\n')
mapfile -t lines < <(seq 3); echo "${lines[@]@Q}"
""",
    "coprocess": """
coproc CAT { cat; }
echo hello >&"${CAT[1]}"
read -r -u "${CAT[0]}" x; echo "$x"
eval "exec ${CAT[1]}>&-"; wait "$CAT_PID"; echo $?
(exit 3) & wait $!; echo $?
sleep 60 & kill %1; wait $!; echo $?
""",
    "job control": "set -m\nsleep 3 &\nfg > /dev/null\necho $?\njobs\n(exit 2) & wait -n; echo $?\n",
    "functions": """
f() { local -n there=$1; there+=("$2"); local -A map=([a]=1); echo "${FUNCNAME[*]} ${BASH_LINENO[*]} $BASH_COMMAND"; }
declare -a z; f z 'a b'; f z c; echo "${z[@]}" ${#z[@]}
down() { [ "$1" -eq 0 ] || down $(($1 - 1)); }
down 200
shopt -s expand_aliases
alias say='echo alias'
say hello
. /dev/stdin <<< 'echo sourced $LINENO; return 7'; echo $?
eval 'echo evaluated; false'; echo $?
case abc in a*) echo A ;;& *c) echo C ;; esac
""",
    "set -x": """
PS4='+${LINENO}:${FUNCNAME[0]:-main} '
set -x
f() { echo in; }
a=$(f)
[ "$a" = in ] && echo same
set +x; set -v
echo verbose
""",
    "POSIX": "set -o posix\nA=2 :\necho ${A-none}\nf() { echo f; }; f\nexec sh -c 'echo $0; exit 11' name\n",
    "errors": """
exec 2> /dev/null
nowhere; echo $?
/etc/passwd; echo $?
cat < /nowhere; echo $?
$none; echo $?
exit 300
""",
    "a signal": "trap 'echo ends; exit 42' TERM\nkill -TERM $$\nsleep 60\n",
    "SIGKILL": "echo before\nkill -KILL $$\n",
}


def test_scripts_do_the_same(traces: Traces, open_folder: Path) -> None:
    folders = [open_folder / str(number) for number in range(len(SCRIPTS))]
    kept, parts = [], b""
    with contextlib.ExitStack() as stack:
        jobs = []
        for folder, text in zip(folders, SCRIPTS.values()):
            folder.mkdir()
            jobs.append(stack.enter_context(script(traces.slot, text, folder)))
        # it is not to be switched off, on a busy machine either, on which hits seem to cost more
        channel = stack.enter_context(begun(traces, share=100.0))
        until(lambda: links(traces) >= len(jobs), SECONDS)
        did = {name: (job.communicate("go\n", timeout=SECONDS)[0], job.returncode) for name, job in zip(SCRIPTS, jobs)}
        while said := channel.recv(1 << 16):
            if said[:1] == messages.PART:
                parts += said[1:]
            elif said[:1] == messages.KEEP:
                kept.append(traced_commands.decode(parts))
                parts = b""
    for name, folder in zip(SCRIPTS, folders):
        plain = subprocess.run(
            [BASH, str(folder / "job.sh")],
            input="go\n", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert did[name] == (plain.stdout, plain.returncode), name
    told = {each.script for part in kept for each in part.lines}
    assert told >= {str(folder / "job.sh") for folder in folders}
