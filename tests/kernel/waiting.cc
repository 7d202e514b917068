// What waits, and says how long it did by its own clock, function by function: `waiting ROUNDS` goes on at each line
// from stdin. `waiting crowd` waits more often than stacks are taken, until the next line: some threads for long, more
// of them for a short time.
// A call that waited for less than a millisecond does not count, and neither does time in the run queue.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t is_locked, may_lock;
static int ends[2];

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static thread_local int schedstat;	/* of this thread */
static volatile bool is_over;
static long long often, rarely;

/* How long the thread was in the run queue, in its life. */
static long long in_queue(void)
{
	char text[128];
	long long queued = 0;
	ssize_t got = pread(schedstat, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = 0;
	sscanf(text, "%*d %lld", &queued);
	return queued;
}

static void rest(long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0);
}

extern "C" {

KEPT int sleeps_briefly(void)
{
	rest(10);
	return 1;
}

KEPT int sleeps_long(void)
{
	rest(40);
	return 1;
}

KEPT int locks(void)
{
	pthread_mutex_lock(&mutex);
	return 1;
}

KEPT int reads_pipe(void)
{
	char byte;

	return read(ends[0], &byte, 1);
}

KEPT int meets(void)
{
	sem_post(&may_lock);
	while (sem_wait(&is_locked))
		;
	return 1;
}

KEPT int comes_often(void)
{
	rest(2);
	return 1;
}

KEPT int comes_rarely(void)
{
	rest(50);
	return 1;
}

KEPT int warms_up(void)
{
	rest(20);
	return 1;
}

}

static long long counted(int (*function)(void))
{
	long long queued = in_queue(), began = now();

	function();

	long long waited = now() - began;

	waited -= in_queue() - queued;

	return waited >= 1000000 ? waited : 0;
}

static void *crowds(void *briefly)
{
	long long waited = 0;

	schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	while (!is_over)
		waited += counted(briefly ? comes_often : comes_rarely);
	__sync_fetch_and_add(briefly ? &often : &rarely, waited);
	return 0;
}

static int crowd(void)
{
	pthread_t threads[12];

	for (int i = 0; i < 12; i++)
		pthread_create(&threads[i], 0, crowds, i < 8 ? threads : 0);
	getchar();
	is_over = true;
	for (int i = 0; i < 12; i++)
		pthread_join(threads[i], 0);
	printf("{\"comes_often\": %lld, \"comes_rarely\": %lld}\n", often, rarely);
	fflush(stdout);
	return pause();
}

static void *other(void *)
{
	char byte = 1;

	for (;;) {
		while (sem_wait(&may_lock))
			;
		pthread_mutex_lock(&mutex);
		sem_post(&is_locked);
		rest(15);
		pthread_mutex_unlock(&mutex);
		rest(15);
		if (write(ends[1], &byte, 1) != 1)
			return 0;
	}
}

int main(int, char **arguments)
{
	long long briefly, longer, locked, read_pipe;
	int rounds = atoi(arguments[1]);
	bool is_crowd = !strcmp(arguments[1], "crowd");
	struct pollfd input = { 0, POLLIN, 0 };
	pthread_t thread;

	schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	if (schedstat < 0 || pipe(ends))
		return 1;
	sem_init(&is_locked, 0, 0);
	sem_init(&may_lock, 0, 0);
	pthread_create(&thread, 0, other, 0);
	while (!poll(&input, 1, 0))
		warms_up();
	getchar();
	if (is_crowd)
		return crowd();
	do {
		briefly = longer = locked = read_pipe = 0;
		for (int i = 0; i < rounds; i++) {
			briefly += counted(sleeps_briefly);
			longer += counted(sleeps_long);
			meets();
			locked += counted(locks);
			pthread_mutex_unlock(&mutex);
			read_pipe += counted(reads_pipe);
		}
		printf("{\"sleeps_briefly\": %lld, \"sleeps_long\": %lld, \"locks\": %lld, \"reads_pipe\": %lld}\n",
		       briefly, longer, locked, read_pipe);
		fflush(stdout);
	} while (getchar() != EOF);
	return pause();
}
