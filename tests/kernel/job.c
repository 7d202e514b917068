/* A job that knows what it did. Each verb does one thing that real jobs do; at its end it prints what it counted.
 *
 * Static, so that nothing is read between exec and main, and its first act is to note what the kernel had counted
 * for it by then. It reaps its orphans too, so that its own rusage and /proc/PID/io hold what all of them used.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static long forked, executed, exited, failed, signalled, core_dumps;

static void die(const char *what)
{
	perror(what);
	exit(99);
}

/* -- what work is made of ------------------------------------------------------------------------------------- */

static void pause_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static void burn_us(long us)
{
	struct timespec now;
	long end = 0;

	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!end)
			end = now.tv_sec * 1000000 + now.tv_nsec / 1000 + us;
	} while (now.tv_sec * 1000000 + now.tv_nsec / 1000 < end);
}

static void move_bytes(long times, long bytes)
{
	int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
	char *buffer = malloc(bytes);

	for (long i = 0; i < times; i++)
		if (read(zero, buffer, bytes) != bytes || write(null, buffer, bytes) != bytes)
			die("move_bytes");
	free(buffer);
	close(zero);
	close(null);
}

/* Memory that is really there: every page is written to. */
static char *touch(long mib)
{
	char *memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	for (long at = 0; at < mib * MIB; at += PAGE)
		memory[at] = 1;
	return memory;
}

/* As fork(2), and counts. */
static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	forked++;
	return pid;
}

/* Waits for all children, orphans of theirs included. */
static void reap(void)
{
	int status;

	while (wait(&status) > 0) {
		exited++;
		failed += WIFEXITED(status) && WEXITSTATUS(status);
		signalled += WIFSIGNALED(status);
		core_dumps += WIFSIGNALED(status) && WCOREDUMP(status);
	}
}

static void become_short(void)
{
	execl("/proc/self/exe", "job", "short", NULL);
	die("execl");
}

/* -- the verbs ------------------------------------------------------------------------------------------------ */

static void verb_short(char **given)
{
	(void)given;
	move_bytes(3, 1000);
	burn_us(1000);
}

static void verb_move(char **given) { move_bytes(atol(given[0]), atol(given[1])); }

/* A file of BYTES that is really written. */
static void verb_store(char **given)
{
	long bytes = atol(given[1]);
	int fd = open(given[0], O_WRONLY | O_CREAT, 0600);

	if (write(fd, touch(bytes / MIB + 1), bytes) != bytes || fsync(fd))
		die(given[0]);
	close(fd);
}

static void verb_burn(char **given) { burn_us(atol(given[0]) * 1000); }

static void verb_children(char **given)
{
	for (long i = atol(given[0]); i > 0; i--) {
		executed++;
		if (!start())
			become_short();
		reap();
	}
}

/* Each is made by a child that is gone before its own child works. */
static void verb_orphans(char **given)
{
	for (long i = atol(given[0]); i > 0; i--) {
		forked++; /* the grandchild */
		if (!start()) {
			if (!fork()) {
				pause_ms(1);
				verb_short(NULL);
			}
			_exit(0);
		}
		if (i % 8 == 0)
			reap();
	}
}

static pthread_barrier_t together;
static const char *manner;
static long work_us;

static void *end_thread(void *nothing)
{
	move_bytes(2, 512);
	burn_us(work_us);
	pthread_barrier_wait(&together);
	if (!strcmp(manner, "group"))
		syscall(SYS_exit_group, 0);
	syscall(SYS_exit, 0);
	return nothing;
}

/* ROUNDS processes of COUNT threads that work for US and all end at one moment. MANNER: `group` all call exit_group, `alone`
 * each ends itself, `leader` the same without the first thread, which has ended long before. */
static void verb_threads(char **given)
{
	long rounds = atol(given[0]), count = atol(given[1]);
	pthread_t thread;

	manner = given[2];
	work_us = atol(given[3]);
	while (rounds--) {
		if (start()) {
			reap();
			continue;
		}
		int leads = !strcmp(manner, "leader");

		pthread_barrier_init(&together, NULL, count - leads);
		for (long i = 1; i < count; i++)
			if (pthread_create(&thread, NULL, end_thread, NULL))
				die("pthread_create");
		if (leads)
			syscall(SYS_exit, 0);
		end_thread(NULL);
	}
}

static void *exec_from_here(void *nothing)
{
	move_bytes(5, 100);
	become_short();
	return nothing;
}

static void *pause_for_ever(void *nothing)
{
	pause();
	return nothing;
}

static void *wait_for_ever(void *nothing)
{
	move_bytes(1, 100);
	pthread_barrier_wait(&together);
	pause();
	return nothing;
}

/* Processes of four threads, of which one that is not the first execs. */
static void verb_threadexec(char **given)
{
	pthread_t thread;

	for (long i = atol(given[0]); i > 0; i--) {
		executed++;
		if (start()) {
			reap();
			continue;
		}
		pthread_barrier_init(&together, NULL, 3);
		for (int n = 0; n < 2; n++)
			pthread_create(&thread, NULL, wait_for_ever, NULL);
		pthread_barrier_wait(&together);
		pthread_create(&thread, NULL, exec_from_here, NULL);
		pause();
	}
}

/* Children that end in every way there is, in the folder where core dumps may lie. */
static void verb_ends(char **given)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY }, none = { 0, 0 };

	if (chdir(given[0]))
		die(given[0]);
	for (int code = 0; code < 4; code++)
		if (!start())
			_exit(code * 85);
	for (int i = 0; i < 3; i++)
		if (!start())
			raise(i ? SIGTERM : SIGKILL);
	for (int i = 0; i < 3; i++)
		if (!start()) {
			setrlimit(RLIMIT_CORE, i ? &all : &none);
			abort();
		}
	reap();
}

/* A child in its parent's memory, for a while. */
static void verb_vfork(char **given)
{
	touch(atol(given[0]));
	forked++;
	if (!vfork()) {
		pause_ms(atol(given[1]));
		_exit(0);
	}
	reap();
}

/* A grandchild in our memory, whose parent has ended. */
static int share_for_ever(void *stack)
{
	if (!stack)
		pause();
	clone(share_for_ever, stack, CLONE_VM | SIGCHLD, NULL);
	syscall(SYS_exit, 0);
	return 0;
}

/* MIB of memory in which two processes live that are not each other's parent. */
static void verb_shared(char **given)
{
	static char stacks[2][65536] __attribute__((aligned(16)));

	touch(atol(given[0]));
	forked += 2;
	if (clone(share_for_ever, stacks[0] + sizeof(stacks[0]), CLONE_VM | SIGCHLD, stacks[1] + sizeof(stacks[1])) < 0)
		die("clone");
	pause();
}

/* COUNT processes that wait for ever in two threads, without their first. */
static void verb_leaderless(char **given)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (long i = atol(given[0]); i > 0; i--) {
		if (start())
			continue;
		for (int n = 0; n < 2; n++)
			if (pthread_create(&thread, &small, pause_for_ever, NULL))
				die("pthread_create");
		syscall(SYS_exit, 0);
	}
	pause();
}

/* A child has MIB for MS, gives all of it back, and ends by itself, or by SIGKILL while it still has it. */
static void verb_peak(char **given)
{
	long mib = atol(given[0]), ms = atol(given[1]);
	int killed = !strcmp(given[2], "killed"), ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		die("pipe");
	pid = start();
	if (!pid) {
		char *memory = touch(mib);

		if (killed && write(ready[1], "", 1) == 1)
			pause();
		pause_ms(ms);
		munmap(memory, mib * MIB);
		_exit(0);
	}
	if (killed && read(ready[0], &byte, 1) == 1)
		kill(pid, SIGKILL);
	reap();
}

/* More memory than there may be. */
static void verb_greedy(char **given)
{
	if (!start()) {
		touch(atol(given[0]));
		_exit(0);
	}
	reap();
}

/* Makes a cgroup below the one it is in, and works in it: moved there, and born there. */
static void verb_subgroup(char **given)
{
	char procs[4096], *folder = given[0];
	int fd;

	if (mkdir(folder, 0755))
		die(folder);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", folder);
	if (!start()) {
		fd = open(procs, O_WRONLY);
		if (write(fd, "0", 1) != 1)
			die(procs);
		verb_short(NULL);
		_exit(0);
	}
	reap();

	struct clone_args into = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = open(folder, O_RDONLY | O_DIRECTORY),
	};

	forked++;
	if (!syscall(SYS_clone3, &into, sizeof(into))) {
		verb_short(NULL);
		_exit(0);
	}
	reap();
}

/* Forks as fast as it can until MS are over. */
static void verb_churn(char **given)
{
	struct timespec now;
	long end = 0;

	do {
		for (int i = 0; i < 4; i++)
			if (!start()) {
				move_bytes(1, 4096);
				_exit(0);
			}
		reap();
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!end)
			end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + atol(given[0]);
	} while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < end);
}

/* Several processes that all want the CPUs. */
static void verb_contend(char **given)
{
	for (long i = atol(given[0]); i > 0; i--)
		if (!start()) {
			burn_us(atol(given[1]) * 1000);
			_exit(0);
		}
	reap();
}

static void verb_wait(char **given) { pause_ms(atol(given[0])); }

static void verb_leave(char **given) { exit(atoi(given[0])); }

/* job_io.c */
void verb_rw(char **), verb_readonce(char **), verb_badopens(char **), verb_absent(char **), verb_copies(char **),
	verb_uring(char **), verb_uringskip(char **), verb_uringfull(char **), verb_uringmultishot(char **),
	verb_rwthreads(char **), verb_script(char **), verb_awaitpipe(char **), verb_write(char **), verb_rwbelow(char **);

static const struct { const char *name; void (*act)(char **given); int given; } verbs[] = {
	{ "rw", verb_rw, 3 }, { "readonce", verb_readonce, 2 }, { "badopens", verb_badopens, 2 },
	{ "absent", verb_absent, 2 }, { "copies", verb_copies, 4 }, { "uring", verb_uring, 3 },
	{ "uringskip", verb_uringskip, 3 }, { "uringfull", verb_uringfull, 3 },
	{ "uringmultishot", verb_uringmultishot, 1 },
	{ "rwthreads", verb_rwthreads, 4 }, { "script", verb_script, 2 }, { "awaitpipe", verb_awaitpipe, 2 },
	{ "write", verb_write, 2 }, { "rwbelow", verb_rwbelow, 4 },
	{ "move", verb_move, 2 }, { "store", verb_store, 2 }, { "burn", verb_burn, 1 }, { "children", verb_children, 1 },
	{ "orphans", verb_orphans, 1 }, { "threads", verb_threads, 4 }, { "threadexec", verb_threadexec, 1 },
	{ "ends", verb_ends, 1 }, { "vfork", verb_vfork, 2 }, { "shared", verb_shared, 1 },
	{ "leaderless", verb_leaderless, 1 }, { "peak", verb_peak, 3 },
	{ "greedy", verb_greedy, 1 }, { "subgroup", verb_subgroup, 1 }, { "churn", verb_churn, 1 },
	{ "contend", verb_contend, 2 }, { "wait", verb_wait, 1 }, { "leave", verb_leave, 1 },
};

int main(int count, char **arguments)
{
	char before[1024];
	struct rusage usage;
	int io;
	ssize_t size;

	if (count > 1 && !strcmp(arguments[1], "short")) {
		verb_short(NULL);
		_exit(0);
	}
	getrusage(RUSAGE_SELF, &usage);
	io = open("/proc/self/io", O_RDONLY);
	size = read(io, before, sizeof(before) - 1);
	close(io);
	before[size > 0 ? size : 0] = 0;
	prctl(PR_SET_CHILD_SUBREAPER, 1);

	/* several verbs in a row are one job: move 3 100 burn 5 */
	for (char **next = arguments + 1; *next;) {
		size_t i = 0;

		while (i < sizeof(verbs) / sizeof(*verbs) && strcmp(verbs[i].name, *next))
			i++;
		if (i == sizeof(verbs) / sizeof(*verbs) || arguments + count - next <= verbs[i].given) {
			fprintf(stderr, "%s: no such verb, or too few arguments\n", *next);
			return 98;
		}
		verbs[i].act(next + 1);
		next += 1 + verbs[i].given;
	}
	reap();
	printf("%sfaults: %ld\ncpu_us: %ld\n", before, usage.ru_minflt,
	       (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	printf("forked: %ld\nexecuted: %ld\nexited: %ld\nfailed: %ld\nsignalled: %ld\ncore_dumps: %ld\n",
	       forked, executed, exited, failed, signalled, core_dumps);
	return 0;
}
