# Names and paths that every script of the test pool shares; sourced, not run.
# Settings come from the environment: JOBLENS_CACHE, SUITE, POOL (a pool's name) and MIRROR (a Debian mirror).
# shellcheck shell=bash disable=SC2034  # the scripts that source this file use the variables

set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(cd "$HERE/../.." && pwd)
CACHE=${JOBLENS_CACHE:-/var/cache/condor_joblens}
CLEAN_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SOURCE=/usr/src/condor_joblens # where the checkout is seen inside a pool, read-only

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# need COMMAND PACKAGE: the command is there, or one line that says how to get it.
need() { command -v "$1" >/dev/null || die "the command $1 is missing: apt-get install $2"; }

# remove_unused PREFIX KEPT: remove what is called PREFIX*, unless it is KEPT or part of it, or a pool stands on it,
# or it was made within the hour: a pool of another checkout may be about to stand on it.
remove_unused() {
    local old
    for old in "$1"*/; do
        case $old in "$2"[/-]*) continue ;; esac
        [ -z "$(find "$old" -maxdepth 0 -mmin -60 2>/dev/null)" ] || continue
        grep -qsF "${old%/}" /proc/[0-9]*/mountinfo || rm -rf "$old"
    done
}

need_root() { [ "$(id -u)" = 0 ] || die "namespaces, mounts and cgroups need root: run it again with sudo"; }

# use_pool NAME: set what belongs to the pool of that name.
use_pool() {
    case $1 in *[!A-Za-z0-9-]* | "") die "POOL=$1: take letters, digits and -" ;; esac
    POOL=$1
    RUN=$CACHE/pools/$POOL # files of the running pool: pid, log, upper (its changes to the root file system), work, root
    # /sys/fs/cgroup, or on a hybrid machine the place beside the version 1 hierarchies
    local mount
    mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$mount" ] || die "no cgroup2 file system is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
    CGROUP=$mount/joblens-pool-$POOL
}

# The pool's process 1 lives: a pid alone may be somebody else's by now, so its cgroup is asked too.
running() { [ -s "$RUN/pid" ] && grep -qs "^0::.*/joblens-pool-$POOL\(/\|$\)" "/proc/$(cat "$RUN/pid")/cgroup"; }

use_pool "${POOL:-main}"
