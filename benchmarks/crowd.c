/* A node full of jobs, as light as processes can be: for each job a starter with its folder and its slot's cgroup, and
 * in that the job, whose processes sleep, wake every few seconds for a little work, and hold one TCP connection.
 *
 *   crowd EXECUTE BASE AD HELPER JOBS PROCESSES     EXECUTE: where the folders dir_PID go; BASE: the cgroup above the
 *                                                  slots'; AD: text to add to each .job.ad; HELPER: joblens_activate
 *   crowd wrapper HELPER PROCESSES                 what each slot executes: tells joblensd, and becomes the job
 *   crowd job PROCESSES
 *
 * Lives until its process group is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
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

static void job(int processes)
{
	connect_to_oneself();
	for (int i = 1; i < processes && fork() > 0; i++)
		;
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

/* What HTCondor's starter does for a job, as far as joblensd can see it. */
static void starter(const char *execute, const char *base, const char *ad, char *helper, int number, char *processes)
{
	char own[256], path[512], cgroup[512], text[512];

	snprintf(own, sizeof(own), "%s/dir_%d", execute, getpid());
	folder(own, CONDOR);
	snprintf(path, sizeof(path), "%s/htcondor", own);
	folder(path, CONDOR);
	snprintf(path, sizeof(path), "%s/scratch", own);
	folder(path, USER);
	snprintf(text, sizeof(text), "ClusterId = %d\nProcId = 0\nNumShadowStarts = 1\nOwner = \"nobody\"\nRequestCpus = 1\n"
		 "RequestMemory = 128\nGlobalJobId = \"access.example.org#%d.0#1700000000\"\n",
		 number, number);
	snprintf(path, sizeof(path), "%s/scratch/.job.ad", own);
	write_file(path, USER, text, ad);
	snprintf(path, sizeof(path), "%s/htcondor/.update.ad", own);
	write_file(path, CONDOR, text, "");

	int used = snprintf(cgroup, sizeof(cgroup), "%s/", base);

	snprintf(cgroup + used, sizeof(cgroup) - used, "%s_slot1_%d@bench.slice", execute, number);
	for (char *slash = cgroup + used; (slash = strchr(slash, '/')); )
		*slash = '_';
	need(mkdir(cgroup, 0755) == 0, cgroup);
	strcat(cgroup, "/job.scope");
	need(mkdir(cgroup, 0755) == 0, cgroup);
	strcat(cgroup, "/cgroup.procs");
	if (fork() > 0)
		for (;;)
			pause();

	int procs = open(cgroup, O_WRONLY);

	need(write(procs, "0", 1) == 1, cgroup);
	close(procs);
	need(setgid(USER) == 0 && setuid(USER) == 0, "setuid");
	execl("/proc/self/exe", "crowd", "wrapper", helper, processes, NULL);
	_exit(1);
}

int main(int count, char **arguments)
{
	static char ad[1 << 16];

	if (count == 3)
		job(atoi(arguments[2]));
	if (count == 4)
		wrapper(arguments[2], arguments[3]);
	if (count != 7) {
		fputs("usage: crowd EXECUTE BASE AD HELPER JOBS PROCESSES\n", stderr);
		return 2;
	}

	int file = open(arguments[3], O_RDONLY);

	need(read(file, ad, sizeof(ad) - 1) > 0, arguments[3]);
	close(file);
	for (int number = 1; number <= atoi(arguments[5]); number++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (child == 0)
			starter(arguments[1], arguments[2], ad, arguments[4], number, arguments[6]);
	}
	for (;;)
		pause();
}
