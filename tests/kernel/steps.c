// A library with the function `step`, which calls of a job are counted of; with PROGRAM defined, a program that does
// them: `steps LIBRARY CHILDREN CALLS [has]`. It waits for a line, and forks. Each child loads the library, every second
// one after a while, if the program has not loaded it before (has). It calls `step` with 1, 2, 3, ... Then it prints its
// pid, and when each call was (CLOCK_MONOTONIC, ns). All wait for the end of standard input.
#ifndef PROGRAM
volatile int sum;

__attribute__((noinline, noclone)) int step(int number)
{
	sum += number;
	return sum;
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST 1000

static void child(const char *library, int number, int calls)
{
	static long long when[MOST];
	char text[32 * MOST];
	int length = 0;
	struct timespec now;

	if (number % 2)
		usleep(300000);

	int (*step)(int) = (int (*)(int))dlsym(dlopen(library, RTLD_NOW), "step");

	for (int call = 0; call < calls; call++) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		when[call] = now.tv_sec * 1000000000LL + now.tv_nsec;
		step(call + 1);
		usleep(5000);
	}
	length = snprintf(text, sizeof(text), "%d", getpid());
	for (int call = 0; call < calls; call++)
		length += snprintf(text + length, sizeof(text) - length, " %lld", when[call]);
	text[length++] = '\n';
	if (write(1, text, length) != length)	// at once: lines of children don't mix
		_exit(1);
}

int main(int argc, char **argv)
{
	char line[64];
	int children = argc > 3 ? atoi(argv[2]) : 0, calls = argc > 3 ? atoi(argv[3]) : 0;

	if (argc > 4)
		dlopen(argv[1], RTLD_NOW);
	if (calls > MOST || read(0, line, sizeof(line)) <= 0)
		return 1;
	for (int number = 0; number < children; number++) {
		if (!fork()) {
			child(argv[1], number, calls);
			break;
		}
		usleep(50000);
	}
	while (read(0, line, sizeof(line)) > 0)
		;
	return 0;
}
#endif
