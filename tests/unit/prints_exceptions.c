/* What a program with Python in it does: a thread of its own prints exceptions, without a frame of Python. */
#define _GNU_SOURCE
#include <Python.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void print(const char *words)
{
	PyErr_SetString(PyExc_ValueError, words);
	PyErr_Print();
}

static void *prints(void *count)
{
	PyGILState_STATE state = PyGILState_Ensure();

	for (long i = 0; i < (long)count; i++)
		print("printed");
	PyGILState_Release(state);
	return NULL;
}

/* Comes back when it is done. */
void print_exceptions(long count)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, prints, (void *)count) == 0)
		pthread_join(thread, NULL);
}

/* Forks as soon as the file `go` is there; the child prints one. */
static void *forks(void *nothing)
{
	for (int i = 0; i < 60000 && access("go", F_OK) != 0; i++)
		usleep(1000);
	PyGILState_STATE state = PyGILState_Ensure();
	PyOS_BeforeFork();
	pid_t child = fork();
	if (child == 0) {
		PyOS_AfterFork_Child();
		print("of the child");
		_exit(0);
	}
	PyOS_AfterFork_Parent();
	PyGILState_Release(state);
	waitpid(child, NULL, 0);
	return nothing;
}

void fork_later(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, forks, NULL);
}
