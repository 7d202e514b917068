// What a signal kills: `crashed WAY FILE` is busy until it gets SIGUSR1, and then does it; it makes the file when it begins.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static volatile sig_atomic_t is_time;
static volatile unsigned long long work;
static int *volatile nothing;
static void (*volatile no_function)(void);
static volatile int zero;
static sigjmp_buf before;

extern "C" {

KEPT void leaf(void)
{
	for (int i = 0; i < 1000000; i++)
		work = work * 6364136223846793005ULL + 1;
}

KEPT int inner(const char *way)
{
	if (!strcmp(way, "null"))
		*nothing = 1;
	else if (!strcmp(way, "call"))
		no_function();
	else if (!strcmp(way, "divide"))
		work = (int)work / zero;
	else if (!strcmp(way, "abort"))
		abort();
	else if (!strcmp(way, "throw"))
		throw std::runtime_error("what it is");
	else
		for (;;)
			leaf();
	return 1;
}

KEPT int outer(const char *way)
{
	return inner(way) + 1;
}

KEPT void comes_back(int)
{
	siglongjmp(before, 1);
}

KEPT void is_told(int)
{
	is_time = 1;
}

}

int main(int, char **arguments)
{
	const char *way = arguments[1];
	bool is_handled = !strcmp(way, "handled");

	signal(SIGUSR1, is_told);
	fclose(fopen(arguments[2], "w"));
	while (!is_time)
		leaf();
	if (is_handled)
		signal(SIGSEGV, comes_back);
	if (sigsetjmp(before, 1))
		return 3;
	work += outer(is_handled ? "null" : way);
	return work & 1;
}
