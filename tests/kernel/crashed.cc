// What a signal kills: `crashed WAY FILE` is busy until it gets SIGUSR1, and then does it; it makes the file when it begins.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static volatile sig_atomic_t is_time;
static volatile unsigned long long work;
static int *volatile nothing;
static void (*volatile no_function)(void);
static volatile int zero;
static sigjmp_buf before;
static std::exception_ptr kept;

namespace reading {
struct Failure : std::runtime_error { using runtime_error::runtime_error; };
}

extern "C" {

KEPT void leaf(void)
{
	for (int i = 0; i < 1000000; i++)
		work = work * 6364136223846793005ULL + 1;
}

KEPT void throw_logic_error(void)
{
	throw std::logic_error("no way out");
}

KEPT void lets_none_through(void) noexcept
{
	throw_logic_error();
}

KEPT void throw_in_handler(void)
{
	try {
		throw std::runtime_error("the first");
	} catch (const std::runtime_error &) {
		throw reading::Failure("the second");
	}
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
	else if (!strcmp(way, "throw a derived one"))
		throw reading::Failure("of its own");
	else if (!strcmp(way, "throw a number"))
		throw 42;
	else if (!strcmp(way, "throw through noexcept"))
		lets_none_through();
	else if (!strcmp(way, "throw again"))
		std::rethrow_exception(kept);
	else if (!strcmp(way, "throw while another is handled"))
		throw_in_handler();
	else if (!strcmp(way, "terminate"))
		std::terminate();
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

	try {
		throw std::runtime_error("kept");
	} catch (...) {
		kept = std::current_exception();
	}
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
