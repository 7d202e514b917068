/*
 * Tells joblensd that a job starts, and waits until it is traced, for 40 ms at most: one packet out, one
 * back (joblens/1, see condor_joblens/control/frames.py). joblens_wrapper runs it as a child, and then the
 * job, whatever came of it.
 *
 * Nothing is ever written to a standard stream: they are the job's. The exit status carries what sh can't
 * find out without starting more processes; sh takes every other status for a helper that didn't work.
 *
 * Link it statically, with musl where there is one (Debian's musl-gcc): it then starts in 0.2 ms, with glibc
 * in 0.5, dynamically in 0.7; and no LD_PRELOAD of the job's gets into it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Compiled in, so that no job's environment leads the helper elsewhere. Tests build one with their own. */
#ifndef JOBLENS_SOCKET
#define JOBLENS_SOCKET "/run/joblens/activate.sock"
#endif
#ifndef JOBLENS_CHAIN
#define JOBLENS_CHAIN "/etc/joblens/chained_wrapper"
#endif
#ifndef JOBLENS_CHAIN_OWNER
#define JOBLENS_CHAIN_OWNER 0
#endif
#ifndef JOBLENS_BUDGET_MS
#define JOBLENS_BUDGET_MS 40
#endif

enum { BUDGET_MS = JOBLENS_BUDGET_MS, RETRY_MS = 1, REQUEST_MAX = 4096, REPLY_MAX = 512 };

enum {
	STATUS = 100,      /* the helper ran to its end, plus */
	PWD_IS_NEW = 1,    /* the job was given no PWD: the shell made it up */
	CHAIN_TRUSTED = 2, /* a wrapper is chained, and only root can have said so */
	CHAIN_REFUSED = 4, /* a wrapper is chained, but others than root could have written that */
	PYTHON = 8,        /* the job asks that its Pythons tell of exceptions, and may have it */
	CALLS = 16,        /* the same, and of calls as well: then PYTHON is not set */
};

static struct timespec started; /* when the wait for joblensd began */

static int remaining_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	long spent = (now.tv_sec - started.tv_sec) * 1000 + (now.tv_nsec - started.tv_nsec) / 1000000;
	return spent < BUDGET_MS ? (int)(BUDGET_MS - spent) : 0;
}

/* Appends a field and its NUL; returns the new length. A value that is unset or doesn't fit is left out. */
static size_t append(char *request, size_t used, const char *key, const char *value)
{
	if (value == NULL || strlen(key) + strlen(value) >= REQUEST_MAX - used)
		return used;
	return (size_t)(stpcpy(stpcpy(request + used, key), value) + 1 - request);
}

/* Whether the answer of this length has a field `python=`. */
static int python_status(const char *reply, ssize_t length)
{
	static const char field[] = "python=";

	for (const char *at = reply, *end; length > 0 && (end = memchr(at, '\0', (size_t)length)); at = end + 1) {
		if (strncmp(at, field, sizeof field - 1) == 0)
			return strcmp(at, "python=calls") == 0 ? CALLS : PYTHON;
		length -= end + 1 - at;
	}
	return 0;
}

/* Comes back when joblensd has answered, when it won't, or when the time is up: the job starts anyway. */
static int activate(void)
{
	const struct sockaddr_un server = { .sun_family = AF_UNIX, .sun_path = JOBLENS_SOCKET };
	char request[REQUEST_MAX], reply[REPLY_MAX];
	size_t used = 0;
	int has_waited = 0;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* EAGAIN is a full backlog, which can't be polled for: many jobs start at once. */
	while (connect(fd, (const struct sockaddr *)&server, sizeof server) < 0) {
		if (errno != EAGAIN || remaining_ms() == 0)
			return 0;
		has_waited = 1;
		poll(NULL, 0, RETRY_MS);
	}
	used = append(request, used, "joblens/1", "");
	used = append(request, used, "activate", "");
	used = append(request, used, "slot=", getenv("_CONDOR_SLOT"));
	used = append(request, used, "scratch=", getenv("_CONDOR_SCRATCH_DIR"));
	if (send(fd, request, used, MSG_NOSIGNAL) < 0)
		return 0;
	/* On a full node it may have had no core until now, for longer than that: joblensd has not had this time. */
	if (!has_waited)
		clock_gettime(CLOCK_MONOTONIC, &started);

	/* Traced, refused, nonsense or the end: the job goes. It is read all the same: a connection closed
	 * with unread data is an ECONNRESET to joblensd. */
	struct pollfd answer = { .fd = fd, .events = POLLIN };
	while (poll(&answer, 1, remaining_ms()) < 0 && errno == EINTR)
		;
	return python_status(reply, recv(fd, reply, sizeof reply, 0));
}

/* The shell exports PWD though it wasn't given one; only the environment that it started with still tells. */
static int pwd_status(void)
{
	static const char name[] = "PWD=";
	char path[32], block[4096];
	ssize_t length;
	int matched = 0; /* characters of `name` that this variable begins with, -1 when it is another one */

	snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	while ((length = read(fd, block, sizeof block)) > 0)
		for (ssize_t i = 0; i < length; i++) {
			if (block[i] == '\0')
				matched = 0;
			else if (matched >= 0)
				matched = block[i] == name[matched] ? matched + 1 : -1;
			if (matched == sizeof name - 1)
				return 0;
		}
	return length == 0 ? PWD_IS_NEW : 0; /* unreadable: leave PWD as it is */
}

/* Who writes the record decides what runs as every user of the pool. */
static int chain_status(void)
{
	struct stat record;

	if (stat(JOBLENS_CHAIN, &record) < 0)
		return 0;
	if (!S_ISREG(record.st_mode) || record.st_mode & (S_IWGRP | S_IWOTH))
		return CHAIN_REFUSED;
	return record.st_uid == JOBLENS_CHAIN_OWNER ? CHAIN_TRUSTED : CHAIN_REFUSED;
}

int main(void)
{
	clock_gettime(CLOCK_MONOTONIC, &started);
	int python = activate();
	return STATUS + python + pwd_status() + chain_status();
}
