/* What bench_tracing.py measures: functions that differ in their first instruction, which decides what a probe costs.
 *
 * For each line `FUNCTION COUNT` of its standard input it prints the nanoseconds of one of so many calls.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

long pushes(long number), marks(long number), computes(long number);

#define FUNCTION(name, code) \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n.p2align 4\n" #name ":\n" code ".size " #name ", .-" #name "\n")

FUNCTION(pushes, "push %rbx\n mov %rdi, %rbx\n lea 1(%rbx), %rax\n pop %rbx\n ret\n");
FUNCTION(marks, "endbr64\n push %rbx\n mov %rdi, %rbx\n lea 1(%rbx), %rax\n pop %rbx\n ret\n");
FUNCTION(computes, "lea 1(%rdi), %rax\n ret\n");

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(void)
{
	static const struct { const char *name; long (*function)(long); } all[] = {
		{ "pushes", pushes }, { "marks", marks }, { "computes", computes },
	};
	char name[32];
	long count;

	while (scanf("%31s %ld", name, &count) == 2) {
		for (unsigned at = 0; at < sizeof(all) / sizeof(*all); at++) {
			if (strcmp(all[at].name, name))
				continue;
			long sum = 0, began = now();

			for (long i = 0; i < count; i++)
				sum = all[at].function(sum);
			printf("%.3f\n", (double)(now() - began) / count);
			fflush(stdout);
		}
	}
	return 0;
}
