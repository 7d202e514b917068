// What is traced: functions that throw, recurse, are jumped over, and leave by a jump. `traced [hot|storm|dies|cancel|again|PROGRAM]`
// waits for a line on its standard input, does it once in two threads, says so, and waits for the end of its input; or it
// becomes another program. `again`: in one thread, once for each line.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

#ifdef SECTION	// as another linker writes it
#define WORD(text) #text
#define NAME(word) WORD(word)
static const char linked[16] __attribute__((section(NAME(SECTION)), used)) = "";
#endif

static volatile long sum;
static volatile bool is_deep;
static thread_local jmp_buf back;

extern "C" {

KEPT int plain(int number, const char *text)
{
	sum = sum + number;
	return (int)strlen(text) - number;
}

KEPT int deep(int depth)
{
	int below = depth > 0 ? deep(depth - 1) : 0;

	sum = sum + depth;
	return below + 1;
}

KEPT void jumps(int depth)
{
	if (depth == 0 && sum + 1)	// always
		longjmp(back, 1);
	if (depth)
		jumps(depth - 1);
	sum = sum + 1;
}

KEPT long last(long number)
{
	sum = sum + number;
	return number * 2;
}

KEPT long tail(long number)
{
	sum = sum + 1;
	return last(number + 1);	// a jump
}

KEPT long through(long (*what)(long), long number)
{
	sum = sum + 1;
	return what(number);	// a jump to what is in a register
}

KEPT int choose(int which)
{
	switch (which) {	// a jump by a table, within the function
	case 0: sum = sum + 7; return 3;
	case 1: sum = sum * 5; return 1;
	case 2: sum = sum - 9; return 4;
	case 3: sum = sum ^ 2; return 1;
	case 4: sum = sum | 4; return 5;
	case 5: sum = sum & 1023; return 9;
	case 6: sum = sum + 77; return 2;
	default: return 6;
	}
}

KEPT void hot(void)
{
	sum = sum + 1;
}

KEPT void cancelled(int depth)
{
	if (depth)
		cancelled(depth - 1);
	else
		for (is_deep = true;;)
			pause();
	sum = sum + 1;
}

KEPT void cancelled_cleanup(void *)
{
	sum = sum + 1;
}

}

namespace work {

struct Failure : std::logic_error {
	using std::logic_error::logic_error;
};

KEPT void throws(int depth)
{
	if (depth == 0)
		throw std::runtime_error("of no use");
	throws(depth - 1);
	sum = sum + 1;
}

}

extern "C" KEPT void dies(void)
{
	sum = sum + 1;
	throw work::Failure("the last one");
}

static void *be_cancelled(void *)
{
	pthread_cleanup_push(cancelled_cleanup, nullptr);
	cancelled(6);
	pthread_cleanup_pop(1);
	return nullptr;
}

static void *act(void *recurses)
{
	for (int i = 0; i < 20; i++)
		plain(i - 5, "eleven char");
	plain(1, nullptr ? "" : "");
	if (recurses)	// in one thread alone: a burst of calls is switched off
		deep(200);
	for (int i = 0; i < 5; i++) {
		try {
			work::throws(3);
		} catch (const std::runtime_error &) {
			sum = sum + 1;
		}
	}
	for (int i = 0; i < 2; i++)
		if (!setjmp(back))
			jumps(6);
	for (long i = 0; i < 10; i++)
		tail(i);
	for (long i = 0; i < 10; i++)
		through(last, i);
	for (int i = 0; i < 16; i++)
		choose(i % 8);
	return nullptr;
}

int main(int argc, char **argv)
{
	char line[64];
	pthread_t thread;

	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (argc > 1 && argv[1][0] == '/') {
		execl(argv[1], argv[1], nullptr);
		return 2;
	}
	if (argc > 1 && !strcmp(argv[1], "dies")) {
		dies();
		sum = sum + 1;
	}
	if (argc > 1 && !strcmp(argv[1], "cancel")) {
		pthread_create(&thread, nullptr, be_cancelled, nullptr);
		while (!is_deep)
			usleep(1000);
		pthread_cancel(thread);
		pthread_join(thread, nullptr);
	} else if (argc > 1 && !strcmp(argv[1], "storm")) {
		for (long i = 0; i < 100000; i++) {
			try {
				work::throws(0);
			} catch (const std::runtime_error &) {
				sum = sum + 1;
			}
		}
	} else if (argc > 1 && !strcmp(argv[1], "again")) {
		do {
			act(nullptr);
			printf("done\n");
			fflush(stdout);
		} while (fgets(line, sizeof(line), stdin));
		return 0;
	} else if (argc > 1) {
		for (long i = 0; i < 3000000; i++)
			hot();
	} else {
		pthread_create(&thread, nullptr, act, nullptr);
		act(line);
		pthread_join(thread, nullptr);
	}
	printf("done\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
