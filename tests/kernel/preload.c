/* What a library in a job's LD_PRELOAD can do in the wrapper's shell. JOBLENS_PRELOAD says what, when it is loaded; with
 * JOBLENS_PRELOAD_LATE it does that when the shell is about to become the job.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *read_much(void *nothing)
{
	static char block[1 << 20];
	int fd = open("/dev/zero", O_RDONLY);

	for (int i = 0; i < 64; i++)
		if (read(fd, block, sizeof(block)) < 0)
			break;
	close(fd);
	return nothing;
}

static void touch(void)
{
	size_t size = 64 << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(memory, size, MADV_NOHUGEPAGE);
	memset(memory, 1, size);
}

static void spin(void)
{
	struct timespec now;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	while (now.tv_sec < 1);
}

static void serve_itself(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

	if (listen(server, 1) < 0 || getsockname(server, (struct sockaddr *)&address, &size) < 0)
		_exit(1);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(client, (struct sockaddr *)&address, size) < 0 || send(client, "x", 1, 0) != 1)
		_exit(1);
	close(client);
	close(server);
}

static void act(const char *what)
{
	pthread_t thread;

	if (!what)
		return;
	if (!strcmp(what, "fork"))
		for (int i = 0; i < 5; i++) {
			if (fork() == 0)
				_exit(3);
			wait(NULL);
		}
	else if (!strcmp(what, "exec")) {
		unsetenv("LD_PRELOAD");
		if (system("exec /bin/true"))
			_exit(1);
	} else if (!strcmp(what, "read"))
		read_much(NULL);
	else if (!strcmp(what, "thread")) {
		pthread_create(&thread, NULL, read_much, NULL);
		pthread_join(thread, NULL);
	} else if (!strcmp(what, "touch"))
		touch();
	else if (!strcmp(what, "spin"))
		spin();
	else if (!strcmp(what, "connect"))
		serve_itself();
	else if (!strcmp(what, "stay"))	/* it never becomes the job */
		exit(7);
}

static int is_shell(void)
{
	char path[256] = "";

	return readlink("/proc/self/exe", path, sizeof(path) - 1) > 2 && !strcmp(path + strlen(path) - 2, "sh");
}

__attribute__((constructor)) static void loaded(void)
{
	if (is_shell() && !getenv("JOBLENS_PRELOAD_LATE"))
		act(getenv("JOBLENS_PRELOAD"));
}

int execve(const char *path, char *const arguments[], char *const environment[])
{
	int (*real)(const char *, char *const[], char *const[]) = dlsym(RTLD_NEXT, "execve");

	if (is_shell() && getenv("JOBLENS_PRELOAD_LATE") && !strstr(path, "joblens_activate"))
		act(getenv("JOBLENS_PRELOAD"));
	return real(path, arguments, environment);
}
