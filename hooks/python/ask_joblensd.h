/*
 * How what is loaded into Pythons of jobs asks joblensd: one packet, one answer, and a time that both may take.
 */
#ifndef ASK_JOBLENSD_H
#define ASK_JOBLENSD_H

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Compiled in, so that no job's environment leads it elsewhere. Tests build one with their own. */
#ifndef JOBLENS_SOCKET
#define JOBLENS_SOCKET "/run/joblens/last_words.sock"
#endif

enum { RETRY_MS = 1 };

static int remaining_ms(const struct timespec *started, int budget_ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	long spent = (now.tv_sec - started->tv_sec) * 1000 + (now.tv_nsec - started->tv_nsec) / 1000000;
	return spent < budget_ms ? (int)(budget_ms - spent) : 0;
}

/* A socket on which joblensd's answer is, or none if the time is up; -1 if joblensd can't be asked. */
static int ask_joblensd(const char *packet, size_t length, int budget_ms)
{
	const struct sockaddr_un server = { .sun_family = AF_UNIX, .sun_path = JOBLENS_SOCKET };
	struct timespec started;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &started);
	int is_open, has_waited = 0;
	while (!(is_open = connect(fd, (const struct sockaddr *)&server, sizeof server) == 0) && errno == EAGAIN &&
	       remaining_ms(&started, budget_ms) > 0) {
		has_waited = 1;
		poll(NULL, 0, RETRY_MS);
	}
	if (!is_open || send(fd, packet, length, MSG_NOSIGNAL) < 0) {
		close(fd);
		return -1;
	}
	/* On a full node it may have had no core until now: joblensd has not had this time. */
	if (!has_waited)
		clock_gettime(CLOCK_MONOTONIC, &started);
	/* joblensd finds the job by this process: it has to be there until then */
	struct pollfd waits = { .fd = fd, .events = POLLIN };
	while (poll(&waits, 1, remaining_ms(&started, budget_ms)) < 0 && errno == EINTR)
		;
	return fd;
}

#endif
