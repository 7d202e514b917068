/* A node full of jobs, as light as processes can be: for each job a starter with its folder and its slot's cgroup, and
 * in that the job, whose processes sleep, wake every few seconds for a little work, and hold one TCP connection.
 *
 *   crowd EXECUTE BASE AD HELPER JOBS PROCESSES     EXECUTE: where the folders dir_PID go; BASE: the cgroup above the
 *                                                  slots'; AD: text to add to each .job.ad; HELPER: joblens_activate
 *   crowd EXECUTE BASE AD HELPER JOBS short AT_A_TIME
 *                                                  jobs that end soon, one after the other in so many slots, every
 *                                                  second one at level io; returns when all have ended
 *   crowd wrapper HELPER PROCESSES                 what each slot executes: tells joblensd, and becomes the job
 *   crowd job PROCESSES
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONDOR = 64, USER = 65534, WAKES_EVERY = 5, WORK_PAGES = 16 };

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

/* A little of everything that leaves traces: a child, a connection, calls that fail, waiting; every seventh fails. */
static void short_job(void)
{
	struct timespec pause = { 0, 50000000 };

	connect_to_oneself();
	for (int i = 0; i < 20; i++)
		need(open("/nothing", O_RDONLY) < 0, "open");
	if (fork() == 0) {
		nanosleep(&pause, NULL);
		_exit(0);
	}
	wait(NULL);
	_exit(getpid() % 7 == 0);
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

static void wrapper(char *helper, char *processes)
{
	if (fork() == 0) {
		execl(helper, helper, NULL);
		_exit(1);
	}
	wait(NULL);
	execl("/proc/self/exe", "crowd", "job", processes, NULL);
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

/* What HTCondor's starter does for a job, as far as joblensd can see it, in slotSLOT_CELL. */
static void starter(char **given, const char *ad, int slot, int cell, int number, char *processes)
{
	const char *execute = given[1], *base = given[2], *is_short = strcmp(processes, "short") ? NULL : "0";
	char own[256], path[512], cgroup[512], text[512], *helper = given[4];

	snprintf(own, sizeof(own), "%s/dir_%d", execute, getpid());
	folder(own, CONDOR);
	snprintf(path, sizeof(path), "%s/htcondor", own);
	folder(path, CONDOR);
	snprintf(path, sizeof(path), "%s/scratch", own);
	folder(path, USER);
	snprintf(text, sizeof(text), "ClusterId = %d\nProcId = 0\nNumShadowStarts = 1\nOwner = \"nobody\"\nRequestCpus = 1\n"
		 "RequestMemory = 128\nGlobalJobId = \"access.example.org#%d.0#%ld\"\n",
		 number, number, (long)time(NULL));
	snprintf(path, sizeof(path), "%s/scratch/.job.ad", own);
	if (is_short)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "JobLensLevel = \"%s\"\n",
			 number & 1 ? "io" : "basic");
	write_file(path, USER, text, ad);
	snprintf(path, sizeof(path), "%s/htcondor/.update.ad", own);
	write_file(path, CONDOR, text, "");

	int used = snprintf(cgroup, sizeof(cgroup), "%s/", base);

	snprintf(cgroup + used, sizeof(cgroup) - used, "%s_slot%d_%d@bench.slice", execute, slot, cell);
	for (char *slash = cgroup + used; (slash = strchr(slash, '/')); )
		*slash = '_';
	need(mkdir(cgroup, 0755) == 0, cgroup);
	strcat(cgroup, "/job.scope");
	need(mkdir(cgroup, 0755) == 0, cgroup);
	strcat(cgroup, "/cgroup.procs");
	if (fork() > 0) {
		while (!is_short)
			pause();
		wait(NULL);
		*strrchr(cgroup, '/') = 0;
		for (int i = 0; i < 2; i++) {
			while (rmdir(cgroup) != 0)
				need(errno == EBUSY, cgroup);
			*strrchr(cgroup, '/') = 0;
		}
		remove_folder(own);
		_exit(0);
	}

	int procs = open(cgroup, O_WRONLY);

	need(write(procs, "0", 1) == 1, cgroup);
	close(procs);
	need(setgid(USER) == 0 && setuid(USER) == 0, "setuid");
	execl("/proc/self/exe", "crowd", "wrapper", helper, is_short ? is_short : processes, NULL);
	_exit(1);
}

/* So many slots, in which jobs follow one another. */
static int short_jobs(char **given, const char *ad, int jobs, int at_a_time)
{
	for (int cell = 0; cell < at_a_time; cell++)
		if (fork() == 0) {
			for (int number = cell; number < jobs; number += at_a_time) {
				pid_t child = fork();

				need(child >= 0, "fork");
				if (child == 0)
					starter(given, ad, 2, cell, number, "short");
				waitpid(child, NULL, 0);
			}
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	return 0;
}

int main(int count, char **arguments)
{
	static char ad[1 << 16];

	if (count > 1 && !strcmp(arguments[1], "--merge"))
		return 0;
	if (count == 3)
		job(atoi(arguments[2]), strchr(arguments[2], '+'));
	if (count == 4)
		wrapper(arguments[2], arguments[3]);
	if (count < 7) {
		fputs("usage: crowd EXECUTE BASE AD HELPER JOBS PROCESSES|short [AT_A_TIME]\n", stderr);
		return 2;
	}

	int file = open(arguments[3], O_RDONLY);

	need(read(file, ad, sizeof(ad) - 1) > 0, arguments[3]);
	close(file);
	if (count == 8)
		return short_jobs(arguments, ad, atoi(arguments[5]), atoi(arguments[7]));
	for (int number = 1; number <= atoi(arguments[5]); number++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (child == 0)
			starter(arguments, ad, 1, number, number, arguments[6]);
	}
	for (;;)
		pause();
}
