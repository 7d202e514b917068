/* A node full of jobs, as light as processes can be: for each job a starter with its folder and its slot's cgroup, and
 * in that the job, whose processes sleep, wake every few seconds for a little work, and hold one TCP connection.
 *
 *   crowd EXECUTE BASE AD HELPER JOBS PROCESSES     EXECUTE: where the folders dir_PID go; BASE: the cgroup above the
 *                                                  slots'; AD: text to add to each .job.ad; HELPER: joblens_activate
 *   crowd EXECUTE BASE AD HELPER JOBS short AT_A_TIME [LEDGER PAUSE]
 *                                                  jobs that end soon, one after the other in so many slots, every
 *                                                  second one at level io; returns when all have ended, and prints how many.
 *                                                  With SIGTERM it starts no more. There are PAUSE
 *                                                  milliseconds between two, and each adds a line to the file LEDGER:
 *                                                  its number, when it ended, how long its wrapper waited, how long
 *                                                  after its end the starter looked (ns), and whether its ad was final
 *   crowd EXECUTE BASE AD HELPER JOBS busyN AT_A_TIME
 *                                                  the same, of jobs that first count for N milliseconds of CPU time,
 *                                                  all at level profile
 *   crowd EXECUTE BASE AD HELPER CLUSTER stranger SLICE PROGRAM ARGUMENT ...
 *                                                  one job of another user in a slot of its own, whose cgroup's name
 *                                                  is SLICE; returns when it has ended
 *   crowd EXECUTE BASE AD HELPER JOBS read PATH GO  jobs that open PATH, wait until there is a file GO, and read PATH
 *   crowd wrapper HELPER PROGRAM ARGUMENT ...      what each slot executes: tells joblensd, and becomes the job
 *   crowd job PROCESSES|busyN
 *   crowd read PATH GO
 *
 * PROCESSES can be P+S: of the P processes of each job, the first starts S programs a second that end at once.
 *
 * Lives until its process group is killed, where it does not return.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONDOR = 64, USER = 65534, STRANGER = 65533, WAKES_EVERY = 5, WORK_PAGES = 16, WAIT = 9 };

static const char BUSY[] = "busy";

/* What a starter does between the end of a job's first process and its look at `.update.ad` takes so long. */
static const struct timespec STARTERS_WORK = { 0, 6000000 };

/* One of these jobs. */
struct job {
	const char *slice;	/* its slot's cgroup; NULL: named by slot and cell */
	int slot, cell, number, user;
	const char *owner, *level;	/* level: NULL where the ad says it */
	char **command;
	int ends;		/* its starter waits for it, and clears up */
	int ledger;		/* where to write how it ended, or -1 */
};

static void need(int true, const char *what)
{
	if (!true) {
		perror(what);
		exit(1);
	}
}

static void folder(const char *path, int owner)
{
	need(mkdir(path, 0755) == 0 && chown(path, owner, owner) == 0, path);
}

static void write_file(const char *path, int owner, const char *text, const char *more)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	need(file >= 0 && fchown(file, owner, owner) == 0, path);
	need(write(file, text, strlen(text)) > 0 && write(file, more, strlen(more)) >= 0, path);
	close(file);
}

static void connect_to_oneself(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

	need(bind(listener, (void *)&address, size) == 0 && listen(listener, 1) == 0, "listen");
	need(getsockname(listener, (void *)&address, &size) == 0, "getsockname");
	need(connect(client, (void *)&address, size) == 0, "connect");
	need(accept(listener, NULL, NULL) >= 0, "accept");
	close(listener);
}

static void work_a_little(void)
{
	static char memory[WORK_PAGES * 4096];
	struct timespec pause = { WAKES_EVERY, getpid() % 1000 * 1000000L };
	int sink = open("/dev/null", O_WRONLY);

	for (;;) {
		nanosleep(&pause, NULL);
		memset(memory, pause.tv_sec, sizeof(memory));
		need(write(sink, memory, sizeof(memory)) > 0, "write");
		pause.tv_nsec = 0;
	}
}

/* A little of everything that leaves traces: a child, a connection, writes, calls that fail, waiting; every seventh
 * fails. bench_fairness.py knows what it does. */
static void short_job(void)
{
	struct timespec pause = { 0, 50000000 };
	int sink = open("/dev/null", O_WRONLY);
	char bytes[1000] = "";

	connect_to_oneself();
	for (int i = 0; i < 10; i++)
		need(write(sink, bytes, sizeof(bytes)) == sizeof(bytes), "write");
	for (int i = 0; i < 20; i++)
		need(open("/nothing", O_RDONLY) < 0, "open");
	if (fork() == 0) {
		nanosleep(&pause, NULL);
		_exit(0);
	}
	wait(NULL);
	_exit(getpid() % 7 == 0);
}

static int is_busy(const char *word)
{
	return !strncmp(word, BUSY, strlen(BUSY));
}

static void count_until(int milliseconds)
{
	volatile unsigned long counted = 0;

	while (clock() < milliseconds * (CLOCKS_PER_SEC / 1000))
		for (int i = 0; i < 100000; i++)
			counted++;
}

/* Is found by samples. The first ask what it executes, which is known after the pause. */
static void busy_job(int milliseconds)
{
	struct timespec pause = { 0, 150000000 };

	count_until(milliseconds / 4);
	nanosleep(&pause, NULL);
	count_until(milliseconds);
	short_job();
}

/* As a script does that calls small programs. */
static void start_programs(int a_second)
{
	struct timespec pause = { 0, 1000000000 / a_second - 1 }, first = { 0, getpid() % 1000 * 1000000L };
	char input[64];

	nanosleep(&first, NULL);
	for (int number = 0; ; number++) {
		snprintf(input, sizeof(input), "/data/run_%d/events_%d.root", getpid(), number);
		if (vfork() == 0) {
			execl("/proc/self/exe", "crowd", "--merge", "--input", input, "--output", "merged.root", "--quiet", NULL);
			_exit(1);
		}
		wait(NULL);
		nanosleep(&pause, NULL);
	}
}

static void job(int processes, const char *starts)
{
	if (processes == 0)
		short_job();
	connect_to_oneself();
	for (int i = 1; i < processes; i++)
		if (fork() == 0)
			work_a_little();
	if (starts)
		start_programs(atoi(starts + 1));
	work_a_little();
}

static void read_when_told(const char *path, const char *go)
{
	struct timespec pause = { 0, 200000000 };
	int file = open(path, O_RDONLY);
	char byte;

	need(file >= 0, path);
	while (access(go, F_OK) != 0)
		nanosleep(&pause, NULL);
	_exit(read(file, &byte, 1) != 1);
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Whoever wants to know how long the job had to wait reads the other end of WAIT. */
static void wrapper(char *helper, char **command)
{
	long began = now();

	if (fork() == 0) {
		execl(helper, helper, NULL);
		_exit(1);
	}
	wait(NULL);
	began = now() - began;
	if (write(WAIT, &began, sizeof(began)) == sizeof(began))
		close(WAIT);
	execv(command[0], command);
	_exit(1);
}

static void remove_folder(const char *path)
{
	struct dirent *entry;
	char file[1024];

	while (rmdir(path) != 0) {
		DIR *open_folder = opendir(path);

		need(open_folder != NULL, path);
		while ((entry = readdir(open_folder))) {
			snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
			if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
				remove_folder(file);
			else
				unlink(file);
		}
		closedir(open_folder);
	}
}

/* The job's folder with its ads, in `own`. */
static void make_folder(const struct job *job, const char *execute, const char *ad, char *own, int size)
{
	char path[512], text[512];
	int used;

	snprintf(own, size, "%s/dir_%d", execute, getpid());
	folder(own, CONDOR);
	snprintf(path, sizeof(path), "%s/htcondor", own);
	folder(path, CONDOR);
	snprintf(path, sizeof(path), "%s/scratch", own);
	folder(path, job->user);
	used = snprintf(text, sizeof(text), "ClusterId = %d\nProcId = 0\nNumShadowStarts = 1\nOwner = \"%s\"\n"
			"RequestCpus = 1\nRequestMemory = 128\nGlobalJobId = \"access.example.org#%d.0#%ld\"\n",
			job->number, job->owner, job->number, (long)time(NULL));
	if (job->level)
		snprintf(text + used, sizeof(text) - used, "JobLensLevel = \"%s\"\n", job->level);
	snprintf(path, sizeof(path), "%s/scratch/.job.ad", own);
	write_file(path, job->user, text, ad);
	text[used] = 0;
	snprintf(path, sizeof(path), "%s/htcondor/.update.ad", own);
	write_file(path, CONDOR, text, "");
}

/* The slot's cgroup, which is its job's own, in `cgroup`. */
static void make_cgroup(const struct job *job, const char *execute, const char *base, char *cgroup, int size)
{
	int used = snprintf(cgroup, size, "%s/", base);
	char procs[600];

	if (job->slice)
		snprintf(cgroup + used, size - used, "%s", job->slice);
	else
		/* of the local universe: there is no startd that could confirm the ads */
		snprintf(cgroup + used, size - used, "%s_local_slot%d_%d@bench.slice", execute, job->slot, job->cell);
	for (char *slash = cgroup + used; (slash = strchr(slash, '/')); )
		*slash = '_';
	for (int depth = 0; depth < 2; depth++) {
		if (depth)
			strcat(cgroup, "/job.scope");
		folder(cgroup, job->user);
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", cgroup);
		need(chown(procs, job->user, job->user) == 0, procs);
	}
}

/* The job has ended: what was known of it when its starter looked. One write, for others write there too. */
static void settle(const struct job *job, const char *own, int waited)
{
	long ended = now(), wait_ns = -1;
	char path[600], line[128];
	static char ad[1 << 18];

	nanosleep(&STARTERS_WORK, NULL);
	snprintf(path, sizeof(path), "%s/htcondor/.update.ad", own);

	int file = open(path, O_RDONLY);

	need(file >= 0 && read(file, ad, sizeof(ad) - 1) > 0, path);
	close(file);
	if (read(waited, &wait_ns, sizeof(wait_ns)) != sizeof(wait_ns))
		wait_ns = -1;
	int length = snprintf(line, sizeof(line), "%d %ld %ld %ld %d\n", job->number, ended, wait_ns, now() - ended,
			      strstr(ad, "Final=true") != NULL);
	need(write(job->ledger, line, length) == length, "ledger");
}

static void remove_cgroup(char *cgroup)
{
	for (int depth = 0; depth < 2; depth++) {
		while (rmdir(cgroup) != 0)
			need(errno == EBUSY, cgroup);
		*strrchr(cgroup, '/') = 0;
	}
}

/* What HTCondor's starter does for a job, as far as joblensd can see it. */
static void starter(char **given, const char *ad, const struct job *job)
{
	char own[256], cgroup[512], scratch[300], *helper = given[4], *command[64] = { "crowd", "wrapper", helper };
	int waited[2];

	make_folder(job, given[1], ad, own, sizeof(own));
	make_cgroup(job, given[1], given[2], cgroup, sizeof(cgroup));
	need(pipe2(waited, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	if (fork() > 0) {
		while (!job->ends)
			pause();
		wait(NULL);
		if (job->ledger >= 0)
			settle(job, own, waited[0]);
		remove_cgroup(cgroup);
		remove_folder(own);
		_exit(0);
	}
	strcat(cgroup, "/cgroup.procs");

	int procs = open(cgroup, O_WRONLY);

	need(write(procs, "0", 1) == 1, cgroup);
	close(procs);
	snprintf(scratch, sizeof(scratch), "%s/scratch", own);
	need(chdir(scratch) == 0, scratch);
	need(job->ledger < 0 || dup2(waited[1], WAIT) == WAIT, "dup2");
	need(setgid(job->user) == 0 && setuid(job->user) == 0, "setuid");
	for (int i = 0; job->command[i] && i < 60; i++)
		command[3 + i] = job->command[i];
	execv("/proc/self/exe", command);
	_exit(1);
}

static void start(char **given, const char *ad, const struct job *job)
{
	pid_t child = fork();

	need(child >= 0, "fork");
	if (child == 0)
		starter(given, ad, job);
}

/* What all slots know: how many jobs they have had, and whether that is enough. */
static struct { atomic_int run, is_enough; } *shared;

static void enough(int signal)
{
	(void)signal;
	shared->is_enough = 1;
}

/* So many slots, in which jobs follow one another. */
static int short_jobs(char **given, const char *ad, int jobs, int at_a_time, int ledger, int pause_ms)
{
	int are_busy = is_busy(given[6]);
	char *command[] = { "/proc/self/exe", "job", are_busy ? given[6] : "0", NULL };
	struct sigaction action = { .sa_handler = enough, .sa_flags = SA_RESTART };

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED && sigaction(SIGTERM, &action, NULL) == 0, "what slots share");
	for (int cell = 0; cell < at_a_time; cell++)
		if (fork() == 0) {
			for (int number = cell; number < jobs && !shared->is_enough; number += at_a_time) {
				struct job job = { .slot = 2, .cell = cell, .number = number, .user = USER,
						   .owner = "nobody",
						   .level = are_busy ? "profile" : number & 1 ? "io" : "basic",
						   .command = command, .ends = 1, .ledger = ledger };

				start(given, ad, &job);
				wait(NULL);
				shared->run++;
				usleep(1000 * pause_ms);
			}
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	printf("%d\n", shared->run);
	return 0;
}

static void long_jobs(char **given, const char *ad, int slot, char **command)
{
	int jobs = atoi(given[5]), before = 10000 * (slot - 1);

	for (int number = 1; number <= jobs; number++) {
		struct job job = { .slot = slot, .cell = number, .number = before + number, .user = USER,
				   .owner = "nobody", .command = command, .ledger = -1 };

		start(given, ad, &job);
	}
}

static int stranger(char **given, const char *ad)
{
	struct job job = { .slice = given[7], .number = atoi(given[5]), .user = STRANGER, .owner = "stranger",
			   .command = given + 8, .ends = 1, .ledger = -1 };

	start(given, ad, &job);
	while (wait(NULL) > 0)
		;
	return 0;
}

int main(int count, char **arguments)
{
	static char ad[1 << 16];

	if (count > 1 && !strcmp(arguments[1], "--merge"))
		return 0;
	if (count > 3 && !strcmp(arguments[1], "wrapper"))
		wrapper(arguments[2], arguments + 3);
	if (count == 4 && !strcmp(arguments[1], "read"))
		read_when_told(arguments[2], arguments[3]);
	if (count == 3 && is_busy(arguments[2]))
		busy_job(atoi(arguments[2] + strlen(BUSY)));
	if (count == 3)
		job(atoi(arguments[2]), strchr(arguments[2], '+'));
	if (count < 7) {
		fputs("usage: crowd EXECUTE BASE AD HELPER JOBS PROCESSES|read|short|busyN [AT_A_TIME [LEDGER PAUSE]]\n", stderr);
		return 2;
	}

	int file = open(arguments[3], O_RDONLY);

	need(read(file, ad, sizeof(ad) - 1) > 0, arguments[3]);
	close(file);
	if (!strcmp(arguments[6], "short") || is_busy(arguments[6])) {
		int has_ledger = count > 9;
		int ledger = has_ledger ? open(arguments[8], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;

		need(!has_ledger || ledger >= 0, "ledger");
		return short_jobs(arguments, ad, atoi(arguments[5]), atoi(arguments[7]), ledger,
				  has_ledger ? atoi(arguments[9]) : 0);
	}
	if (!strcmp(arguments[6], "stranger"))
		return stranger(arguments, ad);

	int reads = count == 9 && !strcmp(arguments[6], "read");
	char *command[] = { "/proc/self/exe", reads ? "read" : "job", arguments[reads ? 7 : 6],
			    reads ? arguments[8] : NULL, NULL };

	long_jobs(arguments, ad, reads ? 3 : 1, command);
	for (;;)
		pause();
}
