"""joblens-door: started by condor_master from DAEMON_LIST on an access point; SIGTERM ends it.

It reads the key as root, and starts what asks the schedd. Then it becomes a user of its own, and can make no
connection, start no program and open no file to write. `joblens-door --config` prints the configuration, and makes the
key.
"""

from __future__ import annotations

import os
import signal
import sys

from condor_joblens.accesspoint.door_server import PROVING_SECONDS, Door
from condor_joblens.accesspoint.from_afar import Afar, Nonces
from condor_joblens.accesspoint.queue_child import QueueChild
from condor_joblens.common import privilege, seccomp
from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, owner_of, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log_settings import DEFAULT_FOLDER
from condor_joblens.common.open_socket import listening_at
from condor_joblens.common.signals import Stop
from condor_joblens.control.keys import key_at, public_half, text_of

USER = "joblens-door"
"""The system user that joblens-door becomes: no other process may have its key."""

_CONFIGURATION = """# joblens-door, and its key in each job submitted from now on: joblens-door --config wrote it.
DAEMON_LIST = $(DAEMON_LIST) JOBLENS_DOOR
JOBLENS_DOOR = $(LIBEXEC)/joblens-door
if ! defined JOBLENS_DOOR_LOG
    JOBLENS_DOOR_LOG = $(LOG)/JobLensDoorLog
endif
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) JobLensKey
JOB_TRANSFORM_JobLensKey @=end
    SET JobLensKey "{key}"
@end
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) JobLensKey
"""

CALLS = (
    *seccomp.INTERPRETERS,
    # to wait
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
    # those who ask, on a socket that is there already, and what asks the schedd; nobody keeps it waiting
    "accept", "accept4", "getsockopt", "recvfrom", "recvmsg", "sendmsg", "sendto", "setitimer", "shutdown",
    # its log, which is open, and what Python reads of its own modules and of the time zone
    "dup", "fstat", "ftruncate", "getcwd", "getdents64", "getuid", "ioctl", "lstat", "newfstatat", "openat", "pread64",
    "readlink", "stat", "statx", "sigaltstack", "uname", "writev",
    # to hear how what asks the schedd has ended
    "wait4", "waitid",
)  # fmt: skip
"""The system calls that it has left. None makes a socket, starts a process, or signals one."""

_OF_DESCRIPTORS = 0x5401, 0x541B, 0x5421, 0x5450, 0x5451  # TCGETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run."""
    # SIGALRM means nothing, but interrupts a system call: see signals.interrupting
    daemon = Daemon("joblens-door", "JOBLENS_DOOR", "JobLensDoorLog", "UID_DOMAIN|LOG", signal.SIGALRM)
    try:
        daemon.read_macros()
        config, problems = parse(daemon.macros)
        if "--config" in sys.argv[1:]:
            print(_CONFIGURATION.format(key=text_of(public_half(key_at(config.door_key)))), end="", flush=True)
            return 0
        daemon.open_log()
        for problem in problems:
            daemon.log.error(problem)
        door = _opened(daemon, config)
        _confine(daemon)
        try:
            door.serve(daemon.signals.socket, daemon.signals.take)
        finally:
            door.close_log()
    except Stop:
        daemon.log("stopped")
        return 0
    except ImportError as error:
        daemon.log.error(f"joblens-door can't run: {error.name or error} is missing: make install EXTRAS=relay")
    except (JobLensError, OSError) as error:
        daemon.log.error(f"joblens-door can't run: {error}")
    return 1


def _opened(daemon: Daemon, config: Config) -> Door:
    """The door, and all that takes root. Raises JobLensError, OSError, ImportError."""
    key, domain = key_at(config.door_key), daemon.macros.get("UID_DOMAIN", "")
    if not domain:
        raise JobLensError("HTCondor's configuration has no UID_DOMAIN: nobody's name can be known")
    owner = owner_of(daemon.macros.get("LOG", DEFAULT_FOLDER)) if os.geteuid() == 0 else None
    queue = QueueChild(owner if owner and owner[0] != 0 else None)
    listener, afar = listening_at(config.door_socket), _afar(config.door_afar_socket)
    daemon.log(f"vouches for users of {domain} at {config.door_socket}; its key is {text_of(public_half(key))}")
    if afar is not None:
        daemon.log(f"takes requests from afar of user id {afar.relay_uid} at {config.door_afar_socket}")
    return Door(listener, queue, key, domain, daemon.log, afar=afar)


def _afar(path: str) -> Afar | None:
    """The socket of the relay, if there is to be one. Raises JobLensError, OSError."""
    if not path:
        return None
    uid = os.geteuid()
    if uid == 0:
        relay = privilege.user(privilege.RELAY_USER)
        if relay is None:
            raise JobLensError(f"JOBLENS_DOOR_AFAR_SOCKET: there is no user {privilege.RELAY_USER} on this machine")
        uid = relay.pw_uid
    listener = listening_at(path)
    os.chmod(path, 0o600)
    os.chown(path, uid, -1)
    return Afar(listener, uid, Nonces(PROVING_SECONDS))


def _confine(daemon: Daemon) -> None:
    """It becomes its own user, and gives up all else, for good. Raises JobLensError, OSError."""
    privilege.become_named(USER)
    privilege.no_new_privileges()
    privilege.not_dumpable()
    if not seccomp.allow_only(CALLS, {"ioctl": seccomp.OneOf(1, *_OF_DESCRIPTORS), "openat": seccomp.ONLY_TO_READ}):
        daemon.log.error("this kernel has no filter of system calls: joblens-door could make all of them")


if __name__ == "__main__":
    run(main)
