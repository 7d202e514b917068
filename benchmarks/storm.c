/* What a job of bench_pessimistic.py does: so many system calls and so many programs a second, all of them counted.
 *
 *   storm FILE GO DONE MILLISECONDS CALLS EXECS     FILE: to write to and read from; GO: it begins when this can be
 *                                                  opened (a FIFO); DONE: where it says what it did
 *   storm leaf                                     a program that it starts: a write and a read of descriptor 3
 *
 * CALLS and EXECS are those of a second, spread over its milliseconds; what the machine has no time for is not made up
 * for. Lives on until it is killed, so that its numbers can be compared with what it says.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DATA = 3, MILLISECOND = 1000000 };

static long started, ended, written, read_back;

static void need(int true, const char *what)
{
	if (!true) {
		perror(what);
		exit(1);
	}
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void write_and_read(void)
{
	char byte = 1;

	need(pwrite(DATA, &byte, 1, 0) == 1 && pread(DATA, &byte, 1, 0) == 1, "data");
	written++;
	read_back++;
}

static void start_leaf(void)
{
	pid_t pid = vfork();

	need(pid >= 0, "vfork");
	if (pid == 0) {
		execl("/proc/self/exe", "storm", "leaf", NULL);
		_exit(1);
	}
	started++;
}

static void reap(int options)
{
	int status;

	while (waitpid(-1, &status, options) > 0) {
		need(status == 0, "a leaf");
		ended++;
		written++;
		read_back++;
	}
}

/* What is due of `each` a second after so many nanoseconds. */
static long due(long nanoseconds, long each)
{
	return nanoseconds / MILLISECOND * each / 1000;
}

static void storm(long milliseconds, long calls, long execs)
{
	long began = now(), calls_made = 0, execs_made = 0, calls_due, execs_due, time;

	while ((time = now() - began) < milliseconds * MILLISECOND) {
		calls_due = due(time, calls);
		execs_due = due(time, execs);
		/* ten milliseconds' worth at a time: a machine that can't keep up does both in their proportion */
		for (long i = 0; i < calls / 100 && calls_made < calls_due; i += 2, calls_made += 2)
			write_and_read();
		for (long i = 0; i < execs / 100 && execs_made < execs_due; i++, execs_made++)
			start_leaf();
		reap(WNOHANG);
		if (calls_made >= calls_due && execs_made >= execs_due)
			nanosleep(&(struct timespec){ .tv_nsec = MILLISECOND - (now() - began) % MILLISECOND }, NULL);
	}
	reap(0);
}

int main(int count, char **given)
{
	char done[4096];

	if (count == 2) {
		write_and_read();
		return 0;
	}
	if (count != 7) {
		fputs("usage: storm FILE GO DONE MILLISECONDS CALLS EXECS\n", stderr);
		return 2;
	}

	int data = open(given[1], O_RDWR | O_CREAT, 0600);

	need(dup2(data, DATA) == DATA, given[1]);
	need(open(given[2], O_RDONLY) >= 0, given[2]);
	storm(atol(given[4]), atol(given[5]), atol(given[6]));
	snprintf(done, sizeof(done), "%s.new", given[3]);

	FILE *file = fopen(done, "w");

	need(file && fprintf(file, "%ld %ld %ld %ld %ld\n", started, started, ended, written, read_back) > 0 && !fclose(file), done);
	need(rename(done, given[3]) == 0, done);
	for (;;)
		pause();
}
