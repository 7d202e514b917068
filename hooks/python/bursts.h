/*
 * Of a Python without sys.monitoring the calls of its main thread are recorded in bursts: 2 ms in 200 ms of CPU time.
 *
 * A profile function makes a Python some times slower as long as it is there, also for what it does not record. So a
 * daemon thread asks Python now and then to call `turn` in the main thread, which puts the function there or takes it
 * away. A burst ends by itself at a call that comes after its time.
 *
 * There is no burst while the job has a profile function itself, and none from the moment when it adds an audit hook:
 * that would be told of each of them.
 */
#ifndef BURSTS_H
#define BURSTS_H

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef JOBLENS_PAUSE_MS
#define JOBLENS_PAUSE_MS 198
#endif

enum {
	BURST_MS = 2,
	PAUSE_MS = JOBLENS_PAUSE_MS,
	BEGIN_MS = 1000, /* the longest wait for the thread to begin */
	RESUME_OF_11 = 151, /* the instruction that tells of a call in 3.11; its argument is 0 where a function begins */
	STATE_BYTES = 192, /* at the begin of a thread's state, where its profile function is: it has more of them */
	EVENT_CALL = 0,
	EVENT_RETURN = 3, /* PyTrace_CALL and PyTrace_RETURN */
};

typedef int profile(PyObject *self, PyObject *frame, int event, PyObject *value);
typedef int audit(const char *event, PyObject *args, void *data);

/* Of each Python from 3.9 to 3.11, and in no limited API. */
void set_profile(profile *function, PyObject *self) __asm__("PyEval_SetProfile") __attribute__((weak));
int line_of_frame(PyObject *frame) __asm__("PyFrame_GetLineNumber") __attribute__((weak));
PyThreadState *first_state(PyInterpreterState *of) __asm__("PyInterpreterState_ThreadHead") __attribute__((weak));
PyThreadState *next_state(PyThreadState *after) __asm__("PyThreadState_Next") __attribute__((weak));
PyInterpreterState *main_interpreter(void) __asm__("PyInterpreterState_Main") __attribute__((weak));
int add_audit_hook(audit *hook, void *data) __asm__("PySys_AddAuditHook") __attribute__((weak));

static struct {
	PyObject *start_thread; /* _thread.start_new_thread */
	size_t offset;          /* of its profile function in a thread's state */
	PyThreadState *state;   /* of the thread that the burst is in; it may be gone */
	uint64_t began_ns;      /* of the burst; 0: there is none */
	int is_wanted, is_asked, is_over;
	int has_begun; /* the thread has; a futex */
	int is_gone; /* Python has ended: states of threads are free, also if the program begins another one */
} bursts;

static int on_event(PyObject *self, PyObject *frame, int event, PyObject *value);

/* What sys.getprofile() tells is an object that need not be there: a profiler in C has none, as ours. */
static profile *profile_of(PyThreadState *state)
{
	profile *found;

	memcpy(&found, (const char *)state + bursts.offset, sizeof found);
	return found;
}

/* Finds where a state has it, by looking for ours. That differs between versions; false: it is not found once. */
static int find_profile(void)
{
	PyThreadState *state = PyThreadState_Get();
	int found = 0;

	set_profile(on_event, NULL);
	for (size_t at = 0; at < STATE_BYTES; at += sizeof(profile *)) {
		size_t before = bursts.offset;
		bursts.offset = at;
		if (profile_of(state) == on_event)
			found++;
		else
			bursts.offset = before;
	}
	set_profile(NULL, NULL);
	return found == 1 && profile_of(state) == NULL;
}

static int is_there(PyThreadState *state)
{
	for (PyThreadState *each = first_state(main_interpreter()); each != NULL; each = next_state(each))
		if (each == state)
			return 1;
	return 0;
}

/* Another thread than the burst's calls it if it adds an audit hook, or forks. */
static void end_burst(void)
{
	if (bursts.began_ns == 0)
		return;
	add(&ring->seen_ns, now_ns() - bursts.began_ns);
	bursts.began_ns = 0;
	if (!is_there(bursts.state) || profile_of(bursts.state) != on_event)
		return;
	PyThreadState *own_state = PyThreadState_Swap(bursts.state);
	set_profile(NULL, NULL);
	PyThreadState_Swap(own_state);
}

/* Where the instruction is at which 3.11 tells of a generator's begin; -1 in an older Python, which tells before all. */
static int begin_of(PyObject *code)
{
	PyObject *bytes = is_of_11 ? attribute(code, "co_code") : NULL;
	const unsigned char *at;
	Py_ssize_t size = 0;
	int found = -1;

	if (bytes != NULL && PyBytes_AsStringAndSize(bytes, (char **)&at, &size) == 0)
		for (int i = 0; i + 1 < size && found < 0; i += 2)
			if (at[i] == RESUME_OF_11 && at[i + 1] == 0)
				found = i;
	PyErr_Clear();
	Py_XDECREF(bytes);
	return found;
}

/* Whether a generator has run before. */
static int has_begun(PyObject *frame, size_t place)
{
	if (known[place].begin == UNKNOWN)
		known[place].begin = begin_of(known[place].code);
	PyObject *last = attribute(frame, "f_lasti");
	long at = last == NULL ? -1 : PyLong_AsLong(last);

	PyErr_Clear();
	Py_XDECREF(last);
	return at > known[place].begin;
}

static int is_open(uint32_t number)
{
	for (int at = own.depth - 1; at >= 0; at--)
		if (own.call[at].number == number)
			return 1;
	return own.too_deep > 0;
}

/* The end of a call, if its begin is of this burst. A generator's ends are not told apart. */
static void end_in_burst(PyObject *frame, size_t place, PyObject *value)
{
	uint32_t number = known[place].number;

	if (!is_open(number))
		return;
	if (value == NULL)
		end_call(UNWIND, number, line_of_frame == NULL ? 0 : (uint32_t)line_of_frame(frame) & 0xffffff, NULL);
	else if (known[place].is_generator)
		end_call(YIELD, number, 0, NULL);
	else
		end_call(RETURN, number, 0, shows_values ? value : NULL);
}

static void begin_in_burst(PyObject *frame, size_t place)
{
	uint32_t number = known[place].number;

	if (known[place].is_generator && has_begun(frame, place)) {
		resume_call(number);
		return;
	}
	add(&ring->code[number].calls, 1);
	record_with(START, number, begin_call(number), 0, NULL, 0);
}

/* The profile function. Python keeps an exception that is on its way aside meanwhile. */
static int on_event(PyObject *self, PyObject *frame, int event, PyObject *value)
{
	(void)self;
	if (event == EVENT_CALL || event == EVENT_RETURN) {
		PyObject *code = code_of(frame);
		size_t place = place_of(code);
		int is_wanted = known[place].code != NULL ? known[place].number < CODES : admit(code);
		place = place_of(code);
		Py_DECREF(code);
		if (is_wanted && event == EVENT_CALL)
			begin_in_burst(frame, place);
		else if (is_wanted)
			end_in_burst(frame, place, value);
	}
	if (now_ns() - bursts.began_ns >= BURST_MS * 1000000u || bursts.is_over || !Py_IsInitialized())
		end_burst();
	return 0;
}

static void begin_burst(void)
{
	PyThreadState *state = PyThreadState_Get();

	if (bursts.began_ns != 0 || bursts.is_over || profile_of(state) != NULL || !is_there(state))
		return;
	bursts.state = state;
	own.depth = own.too_deep = 0;
	bursts.began_ns = now_ns();
	record_with(BURST, 0, bursts.began_ns, 0, NULL, 0);
	set_profile(on_event, NULL);
}

/* Python calls it in its main thread between two instructions: where that was in other code meanwhile, too late. */
static int turn(void *data)
{
	(void)data;
	bursts.is_asked = 0;
	if (bursts.is_wanted && Py_IsInitialized()) /* not so: its end has begun */
		begin_burst();
	else
		end_burst();
	return 0;
}

/* Whoever calls it has Python's lock, as for all that is in `bursts`. */
static void ask_for(int is_wanted)
{
	bursts.is_wanted = is_wanted;
	if (!bursts.is_asked)
		bursts.is_asked = Py_AddPendingCall(turn, NULL) == 0;
}

/* CPU time of the process. */
static uint64_t used_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Python's lock again: what it does to daemon threads once it ends, it no longer does in a program's next Python. */
static void lock_again(PyThreadState *saved)
{
	if (__atomic_load_n(&bursts.is_gone, __ATOMIC_RELAXED))
		pthread_exit(NULL);
	PyEval_RestoreThread(saved);
}

/*
 * What the thread does. A pause is one of CPU time: on a full node a job has a small part of a core, and bursts would
 * be a large one of that. It ends where Python ends daemon threads: there it waits for Python's lock. In 3.9 to 3.11 the
 * main thread looks for calls that another thread has asked for when it has lent that lock, so asking is not enough.
 */
static PyObject *keep_time(PyObject *self, PyObject *none)
{
	uint64_t before = now_ns(), now, used = used_ns();
	PyThreadState *saved;

	(void)self, (void)none;
	__atomic_store_n(&bursts.has_begun, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &bursts.has_begun, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	saved = PyEval_SaveThread();
	while (!__atomic_load_n(&bursts.is_over, __ATOMIC_RELAXED)) {
		poll(NULL, 0, PAUSE_MS);
		if (used_ns() - used < PAUSE_MS * 1000000ull) {
			now = now_ns();
			add(&ring->lived_ns, now - before);
			before = now;
			continue;
		}
		lock_again(saved);
		ask_for(1);
		saved = PyEval_SaveThread();
		poll(NULL, 0, BURST_MS);
		if (__atomic_load_n(&bursts.began_ns, __ATOMIC_RELAXED) || __atomic_load_n(&bursts.is_asked, __ATOMIC_RELAXED)) {
			lock_again(saved);
			ask_for(0);
			saved = PyEval_SaveThread();
		}
		now = now_ns();
		add(&ring->lived_ns, now - before);
		before = now;
		used = used_ns();
	}
	lock_again(saved);
	return answer(Py_None);
}

/*
 * Until the thread has begun. At its end Python frees the states of threads, and one of 3.9 that begins only then looks
 * into its own: a program that is over at once would end by a SIGSEGV. One that runs is ended where it asks for the lock.
 */
static void wait_for_thread(void)
{
	uint64_t end = now_ns() + BEGIN_MS * 1000000ull, now;
	PyThreadState *saved = PyEval_SaveThread();

	while (!__atomic_load_n(&bursts.has_begun, __ATOMIC_ACQUIRE) && (now = now_ns()) < end) {
		struct timespec left = { (time_t)((end - now) / 1000000000u), (long)((end - now) % 1000000000u) };
		syscall(SYS_futex, &bursts.has_begun, FUTEX_WAIT_PRIVATE, 0, &left, NULL, 0);
	}
	PyEval_RestoreThread(saved);
}

/* A thread that Python's module threading does not know, as C code makes it. It takes no signals. */
static void begin_thread(void)
{
	static PyMethodDef method = { "joblens", keep_time, METH_NOARGS, NULL };
	PyObject *function = PyCFunction_NewEx(&method, NULL, NULL), *none = PyTuple_New(0), *done = NULL;
	sigset_t all, mask;

	bursts.has_begun = 0;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &mask);
	if (function != NULL && none != NULL)
		done = PyObject_CallFunctionObjArgs(bursts.start_thread, function, none, NULL);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	PyErr_Clear();
	if (done != NULL)
		wait_for_thread();
	Py_XDECREF(done);
	Py_XDECREF(none);
	Py_XDECREF(function);
}

/* Of a child that Python forks: its bursts need a thread of its own. */
static PyObject *in_child(PyObject *self, PyObject *none)
{
	(void)self, (void)none;
	end_burst();
	bursts.is_asked = bursts.is_wanted = 0;
	if (!bursts.is_over)
		begin_thread();
	return answer(Py_None);
}

static int on_audit(const char *event, PyObject *args, void *data)
{
	(void)args, (void)data;
	if (event[0] == 'c' && strcmp(event, "cpython._PySys_ClearAuditHooks") == 0)
		__atomic_store_n(&bursts.is_gone, 1, __ATOMIC_RELAXED);
	if (event[0] != 's' || strcmp(event, "sys.addaudithook") != 0)
		return 0;
	bursts.is_over = 1;
	end_burst();
	return 0;
}

/* Whether Python calls `in_child` in each child that it forks. */
static int follows_forks(void)
{
	static PyMethodDef method = { "joblens", in_child, METH_NOARGS, NULL };
	PyObject *posix = PyImport_ImportModule("posix"), *done = NULL;
	PyObject *add_to = attribute(posix, "register_at_fork"), *none = PyTuple_New(0);
	PyObject *function = PyCFunction_NewEx(&method, NULL, NULL);
	PyObject *named = function == NULL ? NULL : Py_BuildValue("{sO}", "after_in_child", function);

	if (add_to != NULL && none != NULL && named != NULL)
		done = PyObject_Call(add_to, none, named);
	PyErr_Clear();
	Py_XDECREF(named);
	Py_XDECREF(function);
	Py_XDECREF(none);
	Py_XDECREF(add_to);
	Py_XDECREF(posix);
	Py_XDECREF(done);
	return done != NULL;
}

/* All that is imported is imported now: later it would be told to the job's own `__import__`. */
static void begin_bursts(void)
{
	if (set_profile == NULL || code_of == NULL || add_audit_hook == NULL || first_state == NULL ||
	    next_state == NULL || main_interpreter == NULL)
		return;
	PyObject *module = PyImport_ImportModule("_thread");
	bursts.start_thread = attribute(module, "start_new_thread");
	PyErr_Clear();
	Py_XDECREF(module);
	keeps_unwanted = 1;
	if (bursts.start_thread == NULL || !find_profile() || !follows_forks() || add_audit_hook(on_audit, NULL) < 0)
		return;
	begin_thread();
}

#endif
