// What is sampled: busy in functions whose callers are known. `profiled WAY [MAPPINGS]` never ends; it prints a line when it
// begins, and maps its own code so often before.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static volatile unsigned long long work;

extern "C" {

KEPT void leaf(void)
{
	for (int i = 0; i < 1000000; i++)
		work = work * 6364136223846793005ULL + 1;
}

KEPT int inner(int depth)
{
	leaf();
	return depth + (int)work;
}

KEPT int middle(int depth)
{
	int result = depth > 0 ? middle(depth - 1) : inner(depth);

	return result + 1;
}

KEPT int outer(void)
{
	return middle(5) + 1;
}

/* Its stack is aligned anew: it is found by a pointer that it has saved. */
KEPT int realigned(void)
{
	volatile char room[64] __attribute__((aligned(64)));
	char *more = (char *)alloca(work % 64 + 16);

	memset(more, 1, 16);
	room[0] = more[0];
	return outer() + room[0];
}

KEPT void handler(int)
{
	leaf();
}

KEPT int interrupted(void)
{
	for (;;)
		leaf();
}

KEPT int signalled(void)
{
	struct itimerval every = { { 0, 20000 }, { 0, 20000 } };

	signal(SIGVTALRM, handler);
	setitimer(ITIMER_VIRTUAL, &every, 0);
	return interrupted() + 1;
}

static int by_quick_sort(const void *, const void *)
{
	leaf();
	return 1;
}

/* A library that has no frame pointers calls back. */
KEPT int sorted(void)
{
	int numbers[64] = { 3, 2, 1 };

	qsort(numbers, 64, sizeof(int), by_quick_sort);
	return numbers[0] + 1;
}

static void rename_itself(void)
{
	pthread_setname_np(pthread_self(), "\033[31m\n<b>;\377");
}

KEPT void *threaded(void *)
{
	rename_itself();
	for (;;)
		work += outer();
}

/* Processes that are gone before anybody can look at them. */
KEPT void forked(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	waitpid(child, 0, 0);
}

/* All of the same page: none becomes one with its neighbour. */
static void map_itself(int times)
{
	int file = open("/proc/self/exe", O_RDONLY);

	while (times--)
		if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) {
			perror("mmap");
			exit(1);
		}
	close(file);
}

}

int main(int count, char **arguments)
{
	const char *way = arguments[1];

	if (count > 2)
		map_itself(atoi(arguments[2]));
	printf("begins\n");
	fflush(stdout);
	if (!strcmp(way, "thread")) {
		pthread_t thread;

		pthread_create(&thread, 0, threaded, 0);
		pthread_join(thread, 0);
	}
	if (!strcmp(way, "renamed"))
		rename_itself();
	for (;;) {
		if (!strcmp(way, "signal"))
			work += signalled();
		else if (!strcmp(way, "realigned"))
			work += realigned();
		else if (!strcmp(way, "sort"))
			work += sorted();
		else if (!strcmp(way, "forks"))
			forked();
		else
			work += outer();
	}
}
