"""A job of Python that stands still, in a way that it is told.

    hang_in_python.py WAY PATH [idle]

HANG_TOLD, a file: what it waits for, who has it and in which line, a line each, as it knows itself. Threads and
processes are told as they are numbered in its pid namespace.
"""

import asyncio
import concurrent.futures
import ctypes
import fcntl
import multiprocessing
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

TOLD = open(os.environ["HANG_TOLD"], "a", buffering=1)  # noqa: SIM115
WAYS = {}


def way(function):
    WAYS[function.__name__] = function
    return function


def tell(what, value):
    TOLD.write(f"{what} {value}\n")


def tell_open(descriptor):
    tell("descriptor", descriptor)
    tell("target", os.readlink(f"/proc/self/fd/{descriptor}"))


def here():
    """Tells the line of its caller, who waits in the same line."""
    frame = sys._getframe(1)
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    tell("called", f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {name}()")


def server():
    """A port where nobody answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    KEPT.append(listener)
    tell("protocol", "tcp")
    tell("peer", f"127.0.0.1:{listener.getsockname()[1]}")
    return listener.getsockname()


KEPT = []


def connected():
    client = socket.create_connection(server())
    KEPT.append(client)
    tell_open(client.fileno())
    return client


def piped(descriptor=None):
    reads, _ = os.pipe()
    if descriptor is not None:
        reads = os.dup2(reads, descriptor)
    tell_open(reads)
    tell("holder_pid", os.getpid())
    return reads


@way
def disk_full(path):
    """It tries again and again."""
    with open(path, "r+b", buffering=0) as file:
        tell("target", path)
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                (here(), time.sleep(4321))


@way
def silent(path):
    """PATH is HOST:PORT of who sends a byte now and then, which goes back."""
    client = socket.create_connection(path.split(":"))
    while True:
        client.send(client.recv(1))


def opened(path):
    file = open(path, "r+")  # noqa: SIM115
    tell_open(file.fileno())
    return file


@way
def sleep(path):
    (here(), time.sleep(4321))


@way
def pipe(path):
    reads = piped()
    (here(), os.read(reads, 1))


@way
def recv(path):
    client = connected()
    (here(), client.recv(1))


@way
def accept(path):
    (here(), socket.create_server(("127.0.0.1", 0)).accept())


@way
def poll(path):
    events = select.poll()
    events.register(connected(), select.POLLIN)
    (here(), events.poll())


@way
def selected(path):
    client = connected()
    (here(), select.select([client], [], []))


@way
def urlopen(path):
    host, port = server()
    (here(), urllib.request.urlopen(f"http://{host}:{port}/"))


@way
def getaddrinfo(path):
    while True:
        try:
            (here(), socket.getaddrinfo("nobody.example", 80))
        except OSError:
            time.sleep(0.1)


@way
def awaited(path):
    """The loop has a socket of its own beside."""

    async def load():
        reader, _ = await asyncio.open_connection(*server())
        await reader.read()

    asyncio.run(load())


@way
def never_awaited(path):
    """A future that nobody sets."""

    async def load():
        await asyncio.get_running_loop().create_future()

    asyncio.run(load())


@way
def lock(path):
    one = threading.Lock()
    one.acquire()
    (here(), one.acquire())


@way
def event(path):
    (here(), threading.Event().wait())


@way
def get(path):
    (here(), queue.Queue().get())


@way
def condition(path):
    changed = threading.Condition()
    with changed:
        (here(), changed.wait())


@way
def semaphore(path):
    (here(), threading.Semaphore(0).acquire())


@way
def shared_lock(path):
    """Of multiprocessing: a child has it, and sleeps."""
    context = multiprocessing.get_context("fork")
    lock, is_taken = context.Lock(), context.Event()

    def work():
        with lock:
            is_taken.set()
            time.sleep(4321)

    context.Process(target=work).start()
    is_taken.wait()
    (here(), lock.acquire())


@way
def killed_worker(path):
    """Of a pool: it had the lock of the queue that all workers read."""
    pool = multiprocessing.get_context("fork").Pool(1)
    pool.map(abs, range(3))
    lock = pool._inqueue._rlock
    while lock.acquire(block=False):
        lock.release()
        time.sleep(0.01)
    os.kill(pool._pool[0].pid, signal.SIGKILL)
    (here(), pool.map(abs, range(3)))


@way
def interpreter_lock(path):
    """A function of C that does not give it back before it waits; another thread wants it."""
    reads = piped()
    threading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(int, 1)], daemon=True).start()
    (here(), ctypes.PyDLL(None).read(reads, ctypes.create_string_buffer(1), 1))


@way
def deadlock_with_interpreter(path):
    """One thread has a mutex of C and wants Python's lock; the other one has that, and wants the mutex."""
    mutex, is_locked = ctypes.create_string_buffer(64), threading.Event()

    def lock_and_go_on():
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
        tell("cycle", threading.get_native_id())
        is_locked.set()
        while True:
            time.sleep(0.01)

    threading.Thread(target=lock_and_go_on, daemon=True).start()
    is_locked.wait()
    tell("cycle", os.getpid())
    (here(), ctypes.PyDLL(None).pthread_mutex_lock(mutex))


def received():
    client = connected()
    (here(), client.recv(1))


@way
def join(path):
    thread = threading.Thread(target=received, daemon=True)
    thread.start()
    thread.join()


@way
def future(path):
    """The result of a thread of a pool."""
    concurrent.futures.ThreadPoolExecutor(1).submit(received).result()


@way
def stdin(path):
    reads = piped(0)
    (here(), sys.stdin.readline())
    os.close(reads)


@way
def flock(path):
    file = opened(path)
    (here(), fcntl.flock(file, fcntl.LOCK_EX))


@way
def lockf(path):
    file = opened(path)
    (here(), fcntl.lockf(file, fcntl.LOCK_EX))


@way
def fifo(path):
    tell("target", path)
    (here(), os.open(path, os.O_RDONLY))


@way
def subprocess_run(path):
    (here(), subprocess.run([sys.executable, "-c", "import time; time.sleep(4321)"], check=True))


@way
def communicate(path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4321)"], stdout=subprocess.PIPE)
    tell_open(child.stdout.fileno())
    tell("holder_pid", child.pid)
    (here(), child.communicate())


@way
def both_outputs(path):
    command = [sys.executable, "-c", "import time; time.sleep(4321)"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tell("holder_pid", child.pid)
    (here(), child.communicate())


@way
def waitpid(path):
    child = os.fork()
    if child == 0:
        time.sleep(4321)
    tell("holder_pid", child)
    (here(), os.waitpid(child, 0))


@way
def unread_child(path):
    """Who starts a program, and reads what it says when it has ended."""
    child = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    tell("cycle", os.getpid())
    tell("cycle", child.pid)
    (here(), child.wait())


@way
def unread_queue(path):
    """A child of multiprocessing, which ends when its parent has taken what it has put into a queue."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def put():
        results.put(b"x" * 1000000)
        tell("cycle", results._thread.native_id)

    child = context.Process(target=put)
    tell("cycle", os.getpid())
    child.start()
    (here(), child.join())


@way
def output_of_a_child(path):
    """It has ended, and a child of its own still has the pipe."""
    (here(), subprocess.run(["sh", "-c", "sleep 4321 & exit 0"], stdout=subprocess.PIPE, check=True))


@way
def process(path):
    """A child of multiprocessing, which waits for its parent, which waits for its end."""
    context = multiprocessing.get_context("fork")
    pair = context.Pipe()
    child = context.Process(target=pair[0].recv)
    child.start()
    (here(), child.join())


def main():
    if len(sys.argv) > 3:
        never = threading.Event()
        for _ in range(50):
            threading.Thread(target=never.wait, daemon=True).start()
    WAYS[sys.argv[1]](sys.argv[2])


main()
