"""Pythons with hooks/python in their PYTHONPATH, as the job's wrapper puts it there, and who hears what they tell."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sysconfig
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from condor_joblens.control import frames

HOOK = Path(__file__).resolve().parents[2] / "hooks" / "python"
SECONDS = 120


def build(folder: Path, socket_path: str, budget_ms: int = 30000, *, calls: bool = False, pause_ms: int = 0) -> Path:
    """The folder that the wrapper would name; what is loaded from it knows this socket, and is patient.

    `pause_ms`: between two bursts, if not as on a node.
    """
    folder.mkdir()
    known = [f'-DJOBLENS_SOCKET="{socket_path}"', f"-DJOBLENS_BUDGET_MS={budget_ms}"]
    compiled(HOOK / "joblens_python.c", folder / "joblens_python.so", *known)
    if calls:
        pause = [f"-DJOBLENS_PAUSE_MS={pause_ms}"] if pause_ms else []
        compiled(HOOK / "joblens_calls.c", folder / "joblens_calls.so", *known, *pause)
    shutil.copy(HOOK / "sitecustomize.py", folder)
    return folder


def compiled(source: Path, to: Path, *options: str) -> Path:
    """A library that a Python can load."""
    headers = [sysconfig.get_paths()["include"], *map(str, Path("/usr/include").glob("python3.*"))]
    found = next(path for path in headers if os.path.exists(f"{path}/Python.h"))
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    command = [
        "cc",
        "-O2",
        *warnings,
        "-shared",
        "-fPIC",
        "-pthread",
        f"-I{found}",
        *options,
        "-o",
        str(to),
        str(source),
    ]
    subprocess.run(command, check=True)
    return to


@dataclass
class Hearer:
    """A server on a socket below a folder, which answers at once and keeps what it was told."""

    folder: Path  # of the socket `s`; a path may be longer than the 107 bytes of an address
    told: list[dict[str, str]] = field(default_factory=list)
    variables: list[list[str]] = field(default_factory=list)
    wants_variables: bool = True
    before_answer: Callable[[], object] = lambda: None

    def __enter__(self) -> Hearer:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        place = os.open(self.folder, os.O_PATH)
        self._socket.bind(f"/proc/self/fd/{place}/s")
        os.close(place)
        os.chmod(self.folder / "s", 0o666)
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while self.serve_one():
            pass

    def serve_one(self) -> bool:
        """Hears one; false if it is over."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return False
        with connection, suppress(OSError):
            self.answer(connection, connection.recv(frames.MAX_PACKET + 1))
        return True

    def answer(self, connection: socket.socket, packet: bytes) -> None:
        """Keeps what it was told, and answers."""
        assembled = frames.Assembler(frames.REQUEST, frames.MAX_REQUEST).add(packet)
        assert assembled is not None
        words = frames.decode_words(assembled[1])
        assert words.word in ("raised", "variables")
        told = {name: value.decode() for name, value in words.fields.items()}
        if words.word == "raised":
            self.told.append(told)
            self.before_answer()
        else:
            self.variables.append(told["lines"].splitlines())
        wanted = {"variables": b"wanted"} if words.word == "raised" and self.wants_variables else {}
        connection.send(b"".join(frames.frames(frames.END, frames.encode_words("heard", wanted))))


@dataclass(frozen=True)
class Ran:
    """All that a script leaves behind."""

    code: int
    output: bytes
    errors: bytes
    files: dict[str, bytes]


@dataclass(frozen=True)
class Script:
    """How a Python is called, what is in the files of its folder, and which exceptions it is to tell."""

    name: str
    text: str
    arguments: tuple[str, ...] = ("script.py",)
    stdin: str = ""
    files: dict[str, str] = field(default_factory=dict)
    path: str = ""  # PYTHONPATH of the job's own, below its folder
    tells: tuple[str, ...] = ()  # the lines of exceptions that end it, or its children


def run(
    python: Sequence[str],
    script: Script,
    folder: Path,
    hook: str,
    inside: str = "",
    enter: Callable[[], None] | None = None,
) -> Ran:
    """Runs it in a new folder, which a process that has entered another root by `enter` knows as `inside`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    inside = inside or str(folder)
    for name, text in {"script.py": script.text, **script.files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    own = [f"{inside}/{script.path}"] if script.path else []
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "HOME": inside}
    path = ":".join([hook, *own] if hook else own)
    if path:
        environment["PYTHONPATH"] = path

    def begin() -> None:
        if enter is not None:
            enter()
        os.chdir(inside)

    done = subprocess.run(
        [*python, *script.arguments],
        input=script.stdin.encode(),
        capture_output=True,
        env=environment,
        preexec_fn=begin,
        timeout=SECONDS,
    )
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # addresses are others each time
    output, errors = (re.sub(rb"0x[0-9a-f]+", b"0x", said) for said in (done.stdout, done.stderr))
    return Ran(done.returncode, output, errors, files)


DIVIDES = "def divide(by):\n    return 1 / by\n\n\ndivide(0)\n"
BY_ZERO = ("ZeroDivisionError: division by zero",)

_SHOW = """
import os, sys
print(sys.argv, sys.path, sorted(sys.modules), sys.flags, sys.excepthook is sys.__excepthook__, sys.gettrace())
print(sorted(name for name in os.environ if name != "PYTHONPATH"), sorted(sys.path_importer_cache))
print(os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else "", sys.getprofile(), dir())
"""

SCRIPTS = [
    Script(
        "shows",
        _SHOW,
    ),
    Script(
        "shows by -c",
        "",
        ("-c", _SHOW),
    ),
    Script(
        "shows from stdin",
        "",
        ("-",),
        stdin=_SHOW,
    ),
    Script(
        "a module",
        "",
        ("-m", "own", "a"),
        files={"own.py": _SHOW},
    ),
    Script(
        "a package",
        "",
        ("-m", "own"),
        files={"own/__init__.py": "", "own/__main__.py": "import sys; print(sys.argv)"},
    ),
    Script(
        "a folder",
        "",
        ("own",),
        files={"own/__main__.py": "import sys; print(sys.argv, sys.path[0])"},
    ),
    Script(
        "options",
        _SHOW,
        ("-O", "-B", "-W", "error", "-b", "script.py"),
    ),
    Script(
        "utf-8",
        "print('ä')",
        ("-X", "utf8", "script.py"),
    ),
    Script(
        "developer's mode",
        DIVIDES,
        ("-X", "dev", "script.py"),
        tells=BY_ZERO,
    ),
    Script(
        "isolated",
        DIVIDES,
        ("-I", "script.py"),
    ),
    Script(
        "without environment",
        DIVIDES,
        ("-E", "script.py"),
    ),
    Script(
        "own path",
        "import lent; print(lent.__file__)",
        files={"lib/lent.py": ""},
        path="lib",
    ),
    Script(
        "own sitecustomize",
        """
import sys, builtins; print(builtins.lent, sys.modules['sitecustomize'].__file__)
""",
        files={"lib/sitecustomize.py": "import builtins, sys; builtins.lent = len(sys.path)"},
        path="lib",
    ),
    Script(
        "own sitecustomize that raises",
        "print(1)",
        files={"lib/sitecustomize.py": "1 / 0"},
        path="lib",
    ),
    Script(
        "own sitecustomize that lacks",
        "print(1)",
        files={"lib/sitecustomize.py": "import nothing_here"},
        path="lib",
    ),
    Script(
        "own usercustomize",
        "print(1)",
        files={"lib/usercustomize.py": "print(2)"},
        path="lib",
    ),
    Script(
        "imports sitecustomize",
        """
try:
    import sitecustomize
except ImportError as error:
    print(error.name)
""",
    ),
    Script(
        "ends well",
        """
print('well')
open('made', 'w').write('x')
""",
    ),
    Script(
        "exits",
        "import sys; sys.exit(3)",
    ),
    Script(
        "exits with words",
        "import sys; sys.exit('no input')",
    ),
    Script(
        "exits at once",
        "import os; os._exit(4)",
    ),
    Script(
        "ends of a signal",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    ),
    Script(
        "is interrupted",
        "raise KeyboardInterrupt",
        tells=("KeyboardInterrupt",),
    ),
    Script(
        "divides",
        DIVIDES,
        tells=BY_ZERO,
    ),
    Script(
        "divides by -c",
        "",
        ("-c", "1 / 0"),
        tells=BY_ZERO,
    ),
    Script(
        "divides from stdin",
        "",
        ("-",),
        stdin="""
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "divides as a module",
        "",
        ("-m", "own"),
        files={"own.py": DIVIDES},
        tells=BY_ZERO,
    ),
    Script(
        "does not parse",
        """
x = (
""",
        tells=("SyntaxError",),
    ),
    Script(
        "recurses",
        """
def f(n):
    return f(n + 1)


f(0)
""",
        tells=("RecursionError: maximum recursion depth",),
    ),
    Script(
        "misses a file",
        "open('nothing')",
        tells=("FileNotFoundError: [Errno 2] No such file or directory: 'nothing'",),
    ),
    Script(
        "misses a module",
        "import nothing",
        tells=("ModuleNotFoundError: No module named 'nothing'",),
    ),
    Script(
        "misses a key",
        "{}['é\\udcff']",
        tells=("KeyError: 'é\\udcff'",),
    ),
    Script(
        "decodes",
        "b'\\xff'.decode()",
        tells=("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",),
    ),
    Script(
        "an exception that talks",
        """
class Talks(Exception):
    def __str__(self):
        print('talks')
        return 'x'


raise Talks('no run', [3])
""",
        tells=("Talks: ('no run', [3])",),
    ),
    Script(
        "an exception of things that talk",
        """
class Thing:
    def __repr__(self):
        print('talks')
        return 'x'


raise ValueError(Thing())
""",
        tells=("ValueError",),
    ),
    Script(
        "a file's name that talks",
        """
class Name(str):
    def __repr__(self):
        print('talks')
        return 'x'


open(Name('nothing'))
""",
        tells=("FileNotFoundError",),
    ),
    Script(
        "a class that talks",
        """
class Meta(type):
    def __getattribute__(cls, name):
        print(name)
        return type.__getattribute__(cls, name)


class Mine(Exception, metaclass=Meta):
    def __getattribute__(self, name):
        print(name)
        return Exception.__getattribute__(self, name)


raise Mine('x')
""",
        tells=("Mine: x",),
    ),
    Script(
        "a text that talks by another name",
        """
class Talks(Exception):
    __str__ = object.__str__

    def __repr__(self):
        print('talks')
        return 'x'


raise Talks('y')
""",
        tells=("Talks: ('y',)",),
    ),
    Script(
        "many arguments",
        "raise ValueError(*range(9))",
        tells=("ValueError: (0, 1, 2, 3, 4, 5, 6, 7, ...)",),
    ),
    Script(
        "a long list",
        "raise ValueError([[1], (2,), None, 'x', b'y', 1.5, True, list(range(9)), 'ninth'])",
        tells=("ValueError: [[1], (2,), None, 'x', b'y', 1.5, True, [0, 1, 2, 3, 4, 5, 6, 7, ...], ...]",),
    ),
    Script(
        "a long list with one that talks",
        """
class Thing:
    def __repr__(self):
        print('talks')
        return 'x'


raise ValueError([Thing(), *range(9)])
""",
        tells=("ValueError",),
    ),
    Script(
        "causes",
        """
try:
    {}['a']
except KeyError as error:
    try:
        int('b')
    except ValueError:
        raise RuntimeError('c') from error
""",
        tells=("RuntimeError: c",),
    ),
    Script(
        "causes in a circle",
        """
one, two = ValueError(1), ValueError(2)
one.__cause__, two.__cause__ = two, one
raise one
""",
        tells=("ValueError: 1",),
    ),
    Script(
        "own excepthook",
        """
import sys
sys.excepthook = lambda *a: print('mine')
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "own excepthook that raises",
        """
import sys
sys.excepthook = lambda *a: {}[1]
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "no excepthook",
        """
import sys
del sys.excepthook
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "unraisable",
        """
class A:
    def __del__(self):
        1 / 0


A()
print('goes on')
""",
    ),
    Script(
        "atexit",
        """
import atexit
atexit.register(lambda: 1 / 0)
""",
    ),
    Script(
        "threads",
        """
import threading
t = threading.Thread(target=lambda: 1 / 0)
t.start()
t.join()
print('goes on')
""",
    ),
    Script(
        "a thread that outlives",
        """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "forks",
        """
import os
pid = os.fork()
if not pid:
    1 / 0
print(os.waitpid(pid, 0)[1])
raise ValueError
""",
        tells=(*BY_ZERO, "ValueError"),
    ),
    Script(
        "executes",
        """
import os, sys
os.execv(sys.executable, [sys.executable, '-c', '1 / 0'])
""",
        tells=BY_ZERO,
    ),
    Script(
        "asyncio",
        """
import asyncio


async def main():
    await asyncio.sleep(0)
    raise OSError(5, 'x')


asyncio.run(main())
""",
        tells=("OSError: [Errno 5] x",),
    ),
    Script(
        "settrace",
        """
import sys


def f():
    return 1


sys.settrace(lambda *a: print(a[1], a[0].f_lineno))
f()
sys.settrace(None)
sys.setprofile(lambda *a: print(a[1]))
f()
""",
    ),
    Script(
        "a tracer at the end",
        """
import sys
sys.settrace(lambda *a: print(a[1], a[0].f_code.co_name))
"""
        + DIVIDES,
        tells=BY_ZERO,
    ),
    Script(
        "an audit hook",
        """
import sys
sys.addaudithook(lambda name, a: print(name))
"""
        + DIVIDES,
        tells=BY_ZERO,
    ),
    Script(
        "an audit hook that refuses",
        """
import sys


def hook(name, a):
    raise OSError(name)


sys.addaudithook(hook)
1 / 0
""",
        tells=BY_ZERO,
    ),
    Script(
        "logs",
        """
import logging
try:
    1 / 0
except ZeroDivisionError:
    logging.exception('x')
""",
    ),
    Script(
        "prints an exception",
        """
import sys, traceback
try:
    1 / 0
except ZeroDivisionError:
    sys.excepthook(*sys.exc_info())
""",
    ),
    Script(
        "warns",
        """
import warnings
warnings.warn('x')
""",
    ),
    Script(
        "interactive",
        "",
        ("-i", "-q"),
        stdin="""
1 / 0
print(2)
""",
    ),
    Script(
        "generator",
        """
def g():
    try:
        yield 1
    finally:
        print('closed')


for x in g():
    1 / x - 1 / 0
""",
        tells=BY_ZERO,
    ),
]
"""Scripts that need no more than a Python. What ends them begins with these words in all versions."""

_POOL = """
import multiprocessing


def work(x):
    return 1 / x


if __name__ == '__main__':
    with multiprocessing.get_context('METHOD').Pool(2) as pool:
        print(pool.map(work, [1, 2]))
        try:
            pool.map(work, [0])
        except ZeroDivisionError as error:
            print(error)
"""

VARIABLES = Script(
    "variables",
    """
import json
import sys


class Talks:
    def __repr__(self):
        print('talks')
        return 'x'

    __len__ = __str__ = __hash__ = __eq__ = __del__ = __getattr__ = __repr__


class Meta(type):
    def __getattribute__(cls, name):
        print('talks', name)
        return type.__getattribute__(cls, name)


class Own(dict, metaclass=Meta):
    __repr__ = __len__ = __iter__ = items = lambda self: print('talks')


def outer(event, *rest, run=7, **others):
    password = 'hunter2'
    held = Talks()

    def inner(x, y):
        seen = [event, x]
        if x > 99:
            never = 1
        del y
        return run / (x - x)

    locals()
    held = None
    print('goes on')
    return inner(len(rest), 2)


class Body:
    try:
        outer(b'raw', 1, 2, 3, table={'a': 1, 'b': 2}, own=Own())
    except ZeroDivisionError:
        pass


text, many, big = 'it\\n' * 100, {1, 2, 3}, 1 << 70
nothing, yes, half, turned, thing = None, True, 0.5, 2j, Talks()
for number in range(3):
    outer(text[:2], thing, run=number, json=json)
""",
    tells=BY_ZERO,
)
"""What each frame of it has, by the lines that a Python tells."""

OF_INNER = ["=x=1", "=seen=<list of 2>", "=event='it'", "=run=0"]
OF_OUTER = ["=event='it'", "=run=0", "=rest=<tuple of 1>", "=others=<dict of 1>", "=password='hunter2'", "=held=None"]
OF_MODULE = [
    *("=many=<set of 3>", "=big=<int>", "=nothing=None", "=yes=True", "=half=0.5", "=turned=2j", "=thing=<Talks>"),
    "=number=0",
]


def are_right(variables: list[list[str]]) -> None:
    """Whether these are those that VARIABLES tells."""
    (lines,) = variables
    heads = [at for at, line in enumerate(lines) if line.startswith("@")]
    frames_of = [lines[begin + 1 : end] for begin, end in zip(heads, [*heads[1:], len(lines)])]
    names = [lines[at].partition(",")[0] for at in heads]
    assert names == ["@inner", "@outer", "@<module>"], names
    assert frames_of[0] == OF_INNER, frames_of[0]
    assert sorted(frames_of[1]) == sorted(OF_OUTER), frames_of[1]  # 3.9 has arguments of inner functions last
    assert frames_of[2][0].startswith("~text='it\\nit") and frames_of[2][1:] == OF_MODULE, frames_of[2]


IN_A_SYSTEM = [
    Script(
        "subprocess",
        """
import subprocess, sys
for options in [], ['-I'], ['-E'], ['-s']:
    print(subprocess.run([sys.executable, *options, '-c', '1 / 0'], stderr=subprocess.PIPE))
""",
        tells=BY_ZERO * 2,
    ),
    Script(
        "futures",
        """
import concurrent.futures as futures


def work(x):
    return 1 / x


if __name__ == '__main__':
    with futures.ProcessPoolExecutor(1) as pool:
        print(pool.submit(work, 2).result())
        future = pool.submit(work, 0)
    future.result()
""",
        tells=BY_ZERO,
    ),
    Script(
        "venv",
        """
import subprocess, sys, shutil
subprocess.run([sys.executable, '-m', 'venv', '--without-pip', 'v'], check=True)
print(subprocess.run(['v/bin/python', '-c', 'import sys; print(sys.prefix, sys.path, sorted(sys.modules)); 1 / 0'],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
shutil.rmtree('v')
""",
        tells=BY_ZERO,
    ),
    Script(
        "shell",
        """
import os
print(os.system('python3 -c "import sys; sys.exit(3)"'))
""",
    ),
    Script(
        "temporary files",
        """
import tempfile, os
with tempfile.NamedTemporaryFile(dir='.') as f:
    print(os.path.exists(f.name))
""",
    ),
    *(
        Script(f"multiprocessing by {method}", _POOL.replace("METHOD", method))
        for method in ("fork", "spawn", "forkserver")
    ),
]
"""Those that need more of a system around it."""
