/* What one job can do at its worst, without any privilege, to whoever counts it. bench_fairness.py starts it.
 *
 *   attack WHAT SECONDS WORKERS PLACE DONE [container]
 *                                              WHAT: a name of `attacks` below; so many WORKERS do it at once.
 *                                              PLACE: what it is done to: a cgroup of its own, a socket.
 *                                              DONE gets what it did: processes forked, programs executed, processes
 *                                              exited, its own program's start and end included; workers that failed.
 *                                              container: in namespaces of its own, as the launcher of one makes them
 *   attack leaf                                a program that ends at once
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 16, THREADS = 32, MAP_BYTES = 4 << 20, MOUNTS = 500, CGROUPS = 10000, COMMAND = 256, SILENT = 200 };

static struct counts {
	long forked, executed, exited;
} *counts;

static long end_ns;
static const char *place;
static int worker, workers;

static void need(int true, const char *what)
{
	if (!true) {
		perror(what);
		exit(1);
	}
}

static int is_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec < end_ns;
}

static void add(long *to, long count)
{
	__atomic_fetch_add(to, count, __ATOMIC_RELAXED);
}

static void reap(void)
{
	while (wait(NULL) > 0)
		add(&counts->exited, 1);
}

/* A refusal is no end of it: others may have left no room for a moment. */
static pid_t counted_fork(void)
{
	pid_t pid = fork();

	if (pid > 0)
		add(&counts->forked, 1);
	return pid;
}

static void start_leaf(char **command)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execv("/proc/self/exe", command);
		_exit(1);
	}
	if (pid > 0) {
		add(&counts->forked, 1);
		add(&counts->executed, 1);
	}
}

/* -- the attacks: each does it until the time is up --------------------------------------------------------------- */

static void burn(void)
{
	while (is_time())
		;
}

static void storm_exec(void)
{
	char *command[] = { "attack", "leaf", NULL };

	while (is_time()) {
		for (int i = 0; i < AT_ONCE; i++)
			start_leaf(command);
		reap();
	}
}

/* Arguments of one letter, and quotes in a row, are what redaction takes longest for. */
static void storm_argv(void)
{
	char letters[COMMAND / 2][2], quotes[COMMAND];
	char *many[COMMAND / 2 + 1] = { "attack" }, *one[] = { "attack", quotes, NULL };

	for (int i = 1; i < COMMAND / 2; i++)
		many[i] = strcpy(letters[i], i & 1 ? "a" : "b");
	many[COMMAND / 2] = NULL;
	for (int i = 0; i < COMMAND; i++)
		quotes[i] = "\'a\' "[i % 4];
	quotes[COMMAND - 1] = 0;
	while (is_time()) {
		for (int i = 0; i < AT_ONCE; i++)
			start_leaf(i & 1 ? one : many);
		reap();
	}
}

static void storm_fork(void)
{
	while (is_time()) {
		for (int i = 0; i < AT_ONCE; i++)
			if (counted_fork() == 0)
				_exit(0);
		reap();
	}
}

/* Ends that tell why a job died: by a code, by a signal. */
static void storm_exit(void)
{
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	while (is_time()) {
		for (int i = 0; i < AT_ONCE; i++)
			if (counted_fork() == 0) {
				if (i & 1)
					raise(SIGSEGV);
				_exit(1);
			}
		reap();
	}
}

static void *nothing(void *given)
{
	return given;
}

static void storm_thread(void)
{
	pthread_t threads[THREADS];

	while (is_time()) {
		int started = 0;

		while (started < THREADS && pthread_create(&threads[started], NULL, nothing, NULL) == 0)
			started++;
		for (int i = 0; i < started; i++)
			pthread_join(threads[i], NULL);
	}
}

static int listener(struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);
	int made = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	need(bind(made, (void *)address, size) == 0 && listen(made, 64) == 0, "listen");
	need(getsockname(made, (void *)address, &size) == 0, "getsockname");
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return made;
}

/* Connections that leave nothing behind which would use up the machine's ports. */
static void connect_once(int server, const struct sockaddr_in *address)
{
	struct linger at_once = { 1, 0 };
	int client = socket(AF_INET, SOCK_STREAM, 0), accepted;

	setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	if (connect(client, (const void *)address, sizeof(*address)) == 0 && (accepted = accept(server, NULL, NULL)) >= 0) {
		setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		if (write(client, "x", 1) == 1)
			close(accepted);
	}
	close(client);
}

static void storm_connect(void)
{
	struct sockaddr_in address;
	int server = listener(&address);

	while (is_time())
		connect_once(server, &address);
}

/* Each connection and each datagram has a server of its own: an address of 127.0.0.0/8, and a port. */
static void storm_endpoints(void)
{
	struct sockaddr_in address, other = { .sin_family = AF_INET };
	int server = listener(&address), datagrams = socket(AF_INET, SOCK_DGRAM, 0);

	for (unsigned number = worker; is_time(); number += workers) {
		address.sin_addr.s_addr = other.sin_addr.s_addr = htonl(0x7f000001 + number % 0xfffffd);
		other.sin_port = htons(1024 + number % 60000);
		connect_once(server, &address);
		for (int i = 0; i < AT_ONCE; i++, number += workers) {
			other.sin_addr.s_addr = htonl(0x7f000001 + number % 0xfffffd);
			other.sin_port = htons(1024 + number % 60000);
			sendto(datagrams, "x", 1, MSG_DONTWAIT, (void *)&other, sizeof(other));
		}
	}
}

static void storm_open(void)
{
	char byte;

	while (is_time()) {
		int file = open("/proc/self/exe", O_RDONLY);

		if (file >= 0 && read(file, &byte, 1) == 1)
			close(file);
		open("/nothing/at/all", O_RDONLY);
		open(".", O_RDONLY | O_TMPFILE);
	}
}

static void storm_mmap(void)
{
	while (is_time()) {
		char *memory = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (long at = 0; memory != MAP_FAILED && at < MAP_BYTES; at += 4096)
			memory[at] = 1;
		if (memory != MAP_FAILED)
			munmap(memory, MAP_BYTES);
	}
}

static void write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	need(file >= 0 && write(file, text, strlen(text)) > 0, path);
	close(file);
}

/* Namespaces of its own, in which it is root. */
static void isolate(int namespaces)
{
	char map[64];
	int uid = getuid(), gid = getgid();

	need(unshare(CLONE_NEWUSER | namespaces) == 0, "namespaces of its own");
	write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %d 1", uid);
	write_text("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %d 1", gid);
	write_text("/proc/self/gid_map", map);
}

/* What follows is as in a container: only its cgroup is the one that it would have without. */
static void enter_container(void)
{
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int network, status;
	pid_t first;

	isolate(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
	network = socket(AF_INET, SOCK_DGRAM, 0);
	need(network >= 0 && ioctl(network, SIOCSIFFLAGS, &loopback) == 0, "its own network");
	close(network);
	add(&counts->exited, 1);
	first = fork();
	need(first >= 0, "fork");
	if (first > 0) {
		need(wait(&status) == first, "wait");
		exit(status != 0);
	}
	add(&counts->forked, 1);
}

/* File systems of its own, of which each is written to and read, in a namespace where a user may mount. */
static void storm_mounts(void)
{
	char map[64], path[64];
	int file;

	isolate(CLONE_NEWNS);
	for (int number = 0; is_time(); number++) {
		snprintf(path, sizeof(path), "m%d_%d", worker, number % MOUNTS);
		if (number >= MOUNTS)
			umount2(path, MNT_DETACH);
		else
			mkdir(path, 0755);
		if (mount("none", path, "tmpfs", 0, "size=64k") == 0) {
			strcat(path, "/file");
			file = open(path, O_RDWR | O_CREAT, 0644);
			if (file >= 0 && write(file, path, 1) == 1 && pread(file, map, 1, 0) == 1)
				close(file);
		}
	}
}

static void enter(const char *cgroup)
{
	char path[600];
	int procs;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	procs = open(path, O_WRONLY);
	need(procs >= 0 && write(procs, "0", 1) == 1, path);
	close(procs);
}

/* Ten thousand of them, in which it lives by turns: a program that looks up its cgroup meets a new one each time. */
static void storm_cgroups(void)
{
	char path[560], *command[] = { "attack", "leaf", NULL };
	int made = 0;

	for (int number = 0; is_time(); number++) {
		snprintf(path, sizeof(path), "%s/c%d_%d", place, worker, number % (CGROUPS / workers));
		if (number < CGROUPS / workers)
			made += mkdir(path, 0755) == 0;
		enter(path);
		if (number % AT_ONCE == 0) {
			start_leaf(command);
			reap();
		}
	}
	snprintf(path, sizeof(path), "%s/job.scope", place);
	enter(path);
	while (made-- > 0) {
		snprintf(path, sizeof(path), "%s/c%d_%d", place, worker, made);
		rmdir(path);
	}
}

static int call(const struct sockaddr_un *server)
{
	struct timeval patience = { .tv_usec = 100000 };
	int made = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(made, (const void *)server, sizeof(*server)) == 0)
		return made;
	close(made);
	return -1;
}

/* Requests: to begin its counters, to have another level, another's level, nonsense; and callers that say nothing. */
static void storm_control(void)
{
	static const struct {
		int length;
		const char *text;
	} requests[] = {
#define REQUEST(text) { sizeof(text) - 1, text }
		REQUEST("joblens/1\0activate\0slot=local_slot3_1\0"), REQUEST("joblens/1\0level\0job=local_slot3_1\0level=io\0for=9\0"),
		REQUEST("joblens/1\0level\0job=local_slot2_1\0level=off\0"), REQUEST("joblens/9\0dance\0"),
		REQUEST("joblens/1\0level\0job=1.0\0clear=1\0"),
	};
	struct sockaddr_un server = { .sun_family = AF_UNIX };
	int silent[SILENT], caller;
	char answer[512];

	memset(silent, -1, sizeof(silent));
	snprintf(server.sun_path, sizeof(server.sun_path), "%s", place);
	for (int number = 0; is_time(); number++) {
		if ((caller = call(&server)) < 0)
			continue;
		if (number % 8 == 7) {
			close(silent[number / 8 % SILENT]);
			silent[number / 8 % SILENT] = caller;
			continue;
		}
		if (send(caller, requests[number % 5].text, requests[number % 5].length, MSG_NOSIGNAL) > 0)
			recv(caller, answer, sizeof(answer), 0);
		close(caller);
	}
}

static const struct {
	const char *name;
	void (*make)(void);
} attacks[] = {
	{ "burn", burn }, { "exec", storm_exec }, { "fork", storm_fork }, { "thread", storm_thread },
	{ "exit", storm_exit }, { "connect", storm_connect }, { "open", storm_open }, { "mmap", storm_mmap },
	{ "argv", storm_argv }, { "endpoints", storm_endpoints }, { "mounts", storm_mounts },
	{ "cgroups", storm_cgroups }, { "control", storm_control },
};

static void attack(const char *name)
{
	for (unsigned i = 0; i < sizeof(attacks) / sizeof(*attacks); i++)
		if (!strcmp(attacks[i].name, name)) {
			attacks[i].make();
			exit(0);
		}
	exit(2);
}

int main(int count, char **given)
{
	struct timespec time;
	struct rlimit files;
	char said[128];
	int done, status, failed = 0;

	if (count != 6 && count != 7)
		return 0;
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(counts != MAP_FAILED, "memory");
	counts->executed = counts->exited = 1;
	clock_gettime(CLOCK_MONOTONIC, &time);
	end_ns = time.tv_sec * 1000000000L + time.tv_nsec + (long)(atof(given[2]) * 1e9);
	workers = atoi(given[3]);
	place = given[4];
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (count == 7)
		enter_container();
	for (worker = 0; worker < workers; worker++)
		if (counted_fork() == 0)
			attack(given[1]);
	while (wait(&status) > 0) {
		add(&counts->exited, 1);
		failed += status != 0;
	}
	done = open(given[5], O_WRONLY | O_TRUNC);
	snprintf(said, sizeof(said), "%ld %ld %ld %d\n", counts->forked, counts->executed, counts->exited, failed);
	need(done >= 0 && write(done, said, strlen(said)) > 0, given[5]);
	return failed != 0;
}
