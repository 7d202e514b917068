/* What bench_syscalls.py, bench_servers.py, bench_failing.py, bench_profile_calls.py, bench_recorder.py and
 * bench_crash_stacks.py measure: `calls VERB COUNT BATCHES [PATH]` prints the nanoseconds of one, batch by batch. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What others take of the CPU meanwhile is not in it; of two processes that take turns only the clock knows. */
static clockid_t which = CLOCK_PROCESS_CPUTIME_ID;

static long now(void)
{
	struct timespec time;

	clock_gettime(which, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* COUNT round trips of a byte between two processes on this CPU: two switches each, and two reads and two writes. */
static void pingpong(long count, long batches, int in, int out, int prints)
{
	char byte = 0;

	for (long batch = 0; batch < batches; batch++) {
		long began = now();

		for (long i = 0; i < count; i++)
			if (prints ? write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1
				   : read(in, &byte, 1) != 1 || write(out, &byte, 1) != 1)
				exit(1);
		if (prints)
			printf("%.2f\n", (double)(now() - began) / count / 2);
	}
}

static void handle(int signal)
{
	(void)signal;
}

int main(int arguments, char **given)
{
	if (arguments < 4)
		return 2;

	long count = atol(given[2]), batches = atol(given[3]);
	int there[2], back[2];
	cpu_set_t one;
	char byte = 0;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	if (!strcmp(given[1], "switch")) {
		which = CLOCK_MONOTONIC;
		if (pipe(there) || pipe(back))
			return 1;
		pid_t pid = fork();

		pingpong(count, batches, pid ? back[0] : there[0], pid ? there[1] : back[1], pid != 0);
		return pid ? waitpid(pid, NULL, 0) != pid : 0;
	}

	int fd = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
	struct stat status;

	if (!strcmp(given[1], "stat"))
		which = CLOCK_MONOTONIC;	/* somebody else answers */

	signal(SIGUSR1, handle);
	for (long batch = 0; batch < batches; batch++) {
		long began = now();

		if (!strcmp(given[1], "signal"))
			for (long i = 0; i < count; i++)
				raise(SIGUSR1);
		else if (!strcmp(given[1], "getppid"))
			for (long i = 0; i < count; i++)
				syscall(SYS_getppid);
		else if (!strcmp(given[1], "stat"))
			for (long i = 0; i < count; i++)
				stat(given[4], &status);
		else if (!strcmp(given[1], "open"))
			for (long i = 0; i < count; i++) {
				int file = open(given[4], O_RDONLY);

				if (file >= 0)
					close(file);
			}
		else if (!strcmp(given[1], "badsync"))
			for (long i = 0; i < count; i++)
				fsync(-1);
		else if (!strcmp(given[1], "map"))
			for (long i = 0; i < count; i++) {
				char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

				*(volatile char *)page = 1;
				munmap(page, 4096);
			}
		else
			for (long i = 0; i < count; i += 2)
				if (pwrite(fd, &byte, 1, 0) != 1 || pread(fd, &byte, 1, 0) != 1)
					return 1;
		printf("%.2f\n", (double)(now() - began) / count);
	}
	return 0;
}
