/* As HTCondor's condor_pid_ns_init: starts the job as its child, waits for it, and ends as it did. With an environment
 * variable it does what a library of the user's could make it do:
 *   PID_NS_INIT=read    reads 64 MiB before it starts the job       late    reads them beside it, until after its end
 *   PID_NS_INIT=thread  has a second thread while the job runs
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t job;

static void hand_on(int number) { kill(job, number); }

static void *pause_for_ever(void *nothing)
{
	pause();
	return nothing;
}

static void misuse(const char *when)
{
	const char *what = getenv("PID_NS_INIT");
	static char bytes[1 << 20];
	pthread_t thread;

	if (!what || strcmp(what, when))
		return;
	if (!strcmp(what, "thread")) {
		pthread_create(&thread, NULL, pause_for_ever, NULL);
		return;
	}
	int zero = open("/dev/zero", O_RDONLY);

	for (int i = 0; i < 64; i++)
		if (read(zero, bytes, sizeof(bytes)) < 0)
			_exit(98);
	close(zero);
}

int main(int count, char **arguments)
{
	sigset_t terminated;
	int status;

	(void)count;
	sigemptyset(&terminated);
	sigaddset(&terminated, SIGTERM);
	/* while `job` is 0, it would be handed on to all of our process group, the tests themselves among them */
	sigprocmask(SIG_BLOCK, &terminated, NULL);
	signal(SIGTERM, hand_on);
	misuse("read");
	job = fork();
	if (!job)
		signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_UNBLOCK, &terminated, NULL);
	if (!job) {
		execv(arguments[1], arguments + 1);
		_exit(97);
	}
	misuse("thread");
	while (wait(&status) != job)
		;
	misuse("late");
	return WEXITSTATUS(status);
}
