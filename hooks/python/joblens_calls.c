/*
 * Records the calls of a Python, 3.9 or newer, into a ring that joblensd reads: which function, when, how it ended.
 *
 * sitecustomize.py beside this file loads it into a Python of a job that asks for it. It asks joblensd once, which
 * answers with a sealed file in memory and with the files that were chosen. Nothing of that stays but the mapping: no
 * descriptor, no thread. Then sys.monitoring (PEP 669) calls the functions below. They read names of code objects
 * alone, and run no code of the job's. Functions of other files are switched off where they begin and end, for good.
 * Those of an older Python are recorded in bursts (bursts.h).
 *
 * If returned values were asked for, those of plain types are shown as text, and of others their type's name alone.
 * So are two arguments of functions that were asked for by name.
 *
 * What is in the ring is laid out in tracing/python_ring.py as well. Forked children write into the same ring.
 * It is the limited API of 3.6, links to no libpython, prints nothing, and whatever fails, Python goes on untraced.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03060000
#include <Python.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "ask_joblensd.h"

#ifndef JOBLENS_BUDGET_MS
#define JOBLENS_BUDGET_MS 200
#endif

enum {
	BUDGET_MS = JOBLENS_BUDGET_MS, /* that a Python waits at its start for joblensd's answer */
	CODES = 1536,    /* functions that can be told apart */
	RECORDS = 16384, /* the last events: a power of 2 */
	FILE_BYTES = 128,
	NAME_BYTES = 72,
	LIMIT = 1000, /* calls of a function, if it is limited */
	UNWANTED = 2048, /* code objects of which it is known that they are not recorded, in bursts */
	KNOWN = 8192, /* places for addresses of code objects: a power of 2, above twice CODES and UNWANTED */
	DEEP = 256,   /* calls of a thread of which the begin is kept */
	MOST_PATTERNS = 8,
	REPLY_MAX = 512,
	VALUE_BYTES = 20, /* of a returned value in a record of its own */
	MOST_VALUES = 3,  /* such records of one value */
	MOST_ASKED = 8,   /* functions of which arguments are shown */
	MOST_ARGUMENTS = 2,
	ARGUMENT_RECORDS = 5, /* of one argument, with its name: they fit 4 bits of kind_and_line */
	MOST_TEXT = 200,  /* characters of a str that are looked at */
	UNKNOWN = -2,
	GENERATORS = 0x20 | 0x80 | 0x200, /* CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR */
	FASTCALL = 0x80, /* METH_FASTCALL, which the limited API has from 3.10 on */
};

enum kind { START = 1, RESUME, RETURN, YIELD, UNWIND, VALUE, RAISE, BURST };

struct code {
	uint64_t calls, returned, unwound, total_ns, longest_ns;
	uint64_t over_ns; /* since when its calls are not counted any more; 0: they are */
	uint32_t line, is_ready;
	char file[FILE_BYTES], name[NAME_BYTES];
};

struct record {
	uint64_t number; /* from 1 on; 0 while it is written */
	uint64_t time_ns;
	uint32_t code, pid, tid;
	uint32_t kind_and_line; /* kind in the lowest 8 bits; above them:
				   UNWIND and RAISE the line at which it was, RETURN the number of VALUEs that
				   follow, START those of one argument and above 4 bits those of another one,
				   VALUE its bytes, which are where other kinds have time_ns to tid */
};

struct ring {
	union {
		struct {
			uint64_t records, codes; /* that were begun; they only grow */
			uint64_t others;         /* functions that found no room */
			uint64_t lived_ns, seen_ns; /* in bursts: of all main threads, and while they were recorded */
		};
		char page[4096];
	};
	struct code code[CODES];
	struct record record[RECORDS];
};

static struct ring *ring;
static char reply[REPLY_MAX];
static const char *patterns[MOST_PATTERNS];
static int shows_values, shows_raised, is_limited, keeps_unwanted, is_of_11;
static PyObject *disable;

/* A function of which arguments are shown, by the end of its qualified name, and their names. */
static struct asked {
	const char *function;
	PyObject *argument[MOST_ARGUMENTS]; /* str, or NULL */
} asked[MOST_ASKED];

/* Code objects that are recorded, each with its number in the ring. A reference to each keeps its address its own. */
static struct {
	PyObject *code;
	uint32_t number;
	uint32_t asked; /* place in `asked` from 1 on; 0: no argument is shown */
	int is_generator; /* or a coroutine */
	int begin;        /* of it, in bytes of its code: what bursts have told at its begin; UNKNOWN until then */
} known[KNOWN];
static size_t unwanted;

static __thread struct {
	int depth, too_deep;
	uint32_t pid, tid;
	PyObject *passing; /* the exception that left a frame last: only its address counts */
	struct {
		uint64_t began_ns;
		uint32_t number;
	} call[DEEP];
} own;

/* Not in the limited API of 3.6, and in each Python that has sys.monitoring. */
int PyCode_Addr2Line(PyObject *code, int offset) __attribute__((weak));
PyObject *PyType_GetName(PyTypeObject *type) __attribute__((weak));
PyObject *current_frame(void) __asm__("PyEval_GetFrame"); /* some headers have it with another type */
PyObject *code_of(PyObject *frame) __asm__("PyFrame_GetCode") __attribute__((weak));
PyObject *variable_of(PyObject *frame, PyObject *name) __asm__("PyFrame_GetVar") __attribute__((weak));

/* A step of a traceback as Python has it in memory: its attributes would be told to audit hooks of the job's. */
struct step {
	PyObject_HEAD
	struct step *next;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void add(uint64_t *sum, uint64_t more)
{
	__atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
}

static void forked(void)
{
	own.pid = own.tid = 0;
}

/* Takes the place of record `at`, which nobody reads until it has its number again. */
static struct record *open_record(uint64_t at)
{
	struct record *to = &ring->record[at % RECORDS];

	__atomic_store_n(&to->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return to;
}

/* The bytes of a value, in records from place `at` on. Where the next one is. */
static uint64_t record_value(uint64_t at, const char *value, size_t size)
{
	for (size_t done = 0; done < size; done += VALUE_BYTES) {
		size_t length = size - done < VALUE_BYTES ? size - done : VALUE_BYTES;
		struct record *to = open_record(at);
		memcpy((char *)to + offsetof(struct record, time_ns), value + done, length);
		to->kind_and_line = VALUE | (uint32_t)length << 8;
		__atomic_store_n(&to->number, ++at, __ATOMIC_RELEASE);
	}
	return at;
}

static size_t records_of(size_t size)
{
	return (size + VALUE_BYTES - 1) / VALUE_BYTES;
}

/* An event, and a place right after it for so many VALUEs, which is returned. */
static uint64_t record_before(enum kind kind, uint32_t number, uint64_t when, uint32_t said, size_t values)
{
	uint64_t at = __atomic_fetch_add(&ring->records, 1 + values, __ATOMIC_RELAXED);
	struct record *to = open_record(at);

	if (own.tid == 0) {
		own.pid = (uint32_t)getpid();
		own.tid = (uint32_t)syscall(SYS_gettid); /* gettid() is of glibc 2.30 */
	}
	to->time_ns = when;
	to->code = number;
	to->pid = own.pid;
	to->tid = own.tid;
	to->kind_and_line = (uint32_t)kind | said << 8;
	__atomic_store_n(&to->number, at + 1, __ATOMIC_RELEASE);
	return at + 1;
}

/* An event, and right after it the `size` bytes of the value that came with it. */
static void record_with(enum kind kind, uint32_t number, uint64_t when, uint32_t line, const char *value, size_t size)
{
	size_t values = records_of(size);

	record_value(record_before(kind, number, when, kind == RETURN ? (uint32_t)values : line, values), value, size);
}


/* -- functions and their numbers -- */

/* The place of a code object, or the empty one where it would be; they are never all taken. */
static size_t place_of(PyObject *code)
{
	size_t at = ((uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u >> 40;

	while (known[at % KNOWN].code != NULL && known[at % KNOWN].code != code)
		at++;
	return at % KNOWN;
}

/* The text of a str, of which at most `size` bytes are kept, 0 at the end: the last ones if `is_path`. */
static void copy(char *to, size_t size, PyObject *text, int is_path)
{
	char *bytes;
	Py_ssize_t length;
	PyObject *encoded = text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");

	if (encoded != NULL && PyBytes_AsStringAndSize(encoded, &bytes, &length) == 0) {
		size_t kept = (size_t)length < size ? (size_t)length : size - 1;
		memcpy(to, is_path ? bytes + ((size_t)length - kept) : bytes, kept);
	}
	PyErr_Clear();
	Py_XDECREF(encoded);
}

static PyObject *attribute(PyObject *of, const char *name)
{
	PyObject *found = of == NULL ? NULL : PyObject_GetAttrString(of, name);

	if (found == NULL)
		PyErr_Clear();
	return found;
}

/*
 * `*.py` is about the last part of a path, `analysis/` and `*.py` about its last parts, `/` at the begin about all.
 * What Python imports with is never chosen: each import is hundreds of calls.
 */
static int is_chosen(const char *path)
{
	char longer[REPLY_MAX + 2];
	const char *last = strrchr(path, '/');

	if (strncmp(path, "<frozen importlib", 17) == 0 || strncmp(path, "<frozen zipimport", 17) == 0)
		return 0;
	if (patterns[0] == NULL)
		return asked[0].function == NULL;
	for (size_t i = 0; i < MOST_PATTERNS && patterns[i] != NULL; i++) {
		const char *pattern = patterns[i];
		snprintf(longer, sizeof longer, "*/%s", pattern);
		if (strchr(pattern, '/') == NULL ? fnmatch(pattern, last ? last + 1 : path, 0) == 0 :
						   fnmatch(pattern, path, 0) == 0 || fnmatch(longer, path, 0) == 0)
			return 1;
	}
	return 0;
}

/* Which of `asked`, from 1 on, has a function with this qualified name: `fit` and `Fitter.fit` have `Fitter.fit`. */
static uint32_t asked_of(const char *name)
{
	for (uint32_t i = 0; i < MOST_ASKED && asked[i].function != NULL; i++) {
		size_t length = strlen(name), wanted = strlen(asked[i].function);
		if (length < wanted || strcmp(name + length - wanted, asked[i].function) != 0)
			continue;
		if (length == wanted || name[length - wanted - 1] == '.')
			return i + 1;
	}
	return 0;
}

/* Gives it a number; false if it is neither asked for by name nor of a chosen file, or there is no room. */
static int admit(PyObject *code)
{
	char path[4096] = "", qualified[1024] = "";
	PyObject *file = attribute(code, "co_filename"), *name = attribute(code, "co_qualname");

	if (name == NULL) /* before 3.11 */
		name = attribute(code, "co_name");
	copy(path, sizeof path, file, 1);
	copy(qualified, sizeof qualified, name, 1);
	uint32_t of_it = asked_of(qualified);
	int is_wanted = of_it != 0 || is_chosen(path);
	if (is_wanted && ring->codes >= CODES) {
		add(&ring->others, 1);
		is_wanted = 0;
	}
	uint64_t number = is_wanted ? __atomic_fetch_add(&ring->codes, 1, __ATOMIC_RELAXED) : CODES;
	if (number < CODES) { /* children of a fork take numbers as well */
		struct code *to = &ring->code[number];
		PyObject *line = attribute(code, "co_firstlineno");
		copy(to->file, FILE_BYTES, file, 1);
		copy(to->name, NAME_BYTES, name, 0);
		to->line = line == NULL ? 0 : (uint32_t)PyLong_AsLong(line);
		PyErr_Clear();
		Py_XDECREF(line);
		__atomic_store_n(&to->is_ready, 1, __ATOMIC_RELEASE);
		Py_INCREF(code);
		size_t place = place_of(code);
		known[place].code = code;
		known[place].number = (uint32_t)number;
		known[place].asked = of_it;
		PyObject *flags = attribute(code, "co_flags");
		known[place].is_generator = flags != NULL && (PyLong_AsLong(flags) & GENERATORS) != 0;
		Py_XDECREF(flags);
		known[place].begin = UNKNOWN;
	} else if (keeps_unwanted && unwanted < UNWANTED) {
		Py_INCREF(code);
		unwanted++;
		known[place_of(code)].number = CODES;
		known[place_of(code)].code = code;
	}
	Py_XDECREF(file);
	Py_XDECREF(name);
	return number < CODES;
}

/* -- values -- */

/* Whether it is of this type and of no class derived from it, which could have code of its own. */
static int is_exactly(PyObject *value, PyTypeObject *type)
{
	return Py_TYPE(value) == type;
}

/* An int that fits 64 bits, or how an other one is told: its text would take long. */
static PyObject *text_of_int(PyObject *value)
{
	int overflows = 0;

	PyLong_AsLongLongAndOverflow(value, &overflows);
	return overflows ? PyUnicode_FromString("an int of more than 64 bits") : PyObject_Repr(value);
}

static PyObject *text_of_str(PyObject *value)
{
	PyObject *begin = PyUnicode_Substring(value, 0, MOST_TEXT);
	PyObject *text = begin == NULL ? NULL : PyObject_Repr(begin);

	Py_XDECREF(begin);
	return text;
}

/* The text of a value, without running code of the job's: its type's name if it is of no plain type. */
static PyObject *text_of(PyObject *value)
{
	if (value == Py_None || is_exactly(value, &PyBool_Type) || is_exactly(value, &PyFloat_Type))
		return PyObject_Repr(value);
	if (is_exactly(value, &PyLong_Type))
		return text_of_int(value);
	if (is_exactly(value, &PyUnicode_Type))
		return text_of_str(value);
	if (is_exactly(value, &PyBytes_Type))
		return PyUnicode_FromFormat("%zd bytes", PyBytes_Size(value));
	PyObject *name = PyType_GetName == NULL ? NULL : PyType_GetName(Py_TYPE(value));
	PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<%U>", name);
	Py_XDECREF(name);
	return text;
}

/* Writes the begin of a text, which it takes, of at most `room` bytes, and says how many. */
static size_t show_in(char *to, size_t room, PyObject *text)
{
	PyObject *encoded = text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
	size_t size = 0;
	char *bytes;
	Py_ssize_t length;

	if (encoded != NULL && PyBytes_AsStringAndSize(encoded, &bytes, &length) == 0) {
		size = (size_t)length < room ? (size_t)length : room;
		memcpy(to, bytes, size);
	}
	PyErr_Clear();
	Py_XDECREF(encoded);
	Py_XDECREF(text);
	return size;
}

static size_t show(char to[VALUE_BYTES * MOST_VALUES], PyObject *text)
{
	return show_in(to, VALUE_BYTES * MOST_VALUES, text);
}

/* `NAME=VALUE` of an argument of the call that begins; nothing if its function has none of that name. */
static size_t show_argument(char to[VALUE_BYTES * ARGUMENT_RECORDS], PyObject *frame, PyObject *name)
{
	PyObject *value = variable_of(frame, name), *text = value == NULL ? NULL : text_of(value), *both = NULL;

	PyErr_Clear();
	if (text != NULL)
		both = PyUnicode_FromFormat("%U=%U", name, text);
	PyErr_Clear();
	Py_XDECREF(text);
	Py_XDECREF(value);
	return show_in(to, VALUE_BYTES * ARGUMENT_RECORDS, both);
}

/* The begin of a call with what is asked for of its arguments. */
static void record_start(const struct asked *of, PyObject *code, uint32_t number, uint64_t when)
{
	char text[MOST_ARGUMENTS][VALUE_BYTES * ARGUMENT_RECORDS];
	size_t size[MOST_ARGUMENTS] = { 0 }, first, second;
	PyObject *frame = current_frame();
	PyObject *its = frame == NULL || code_of == NULL || variable_of == NULL ? NULL : code_of(frame);

	for (size_t i = 0; i < MOST_ARGUMENTS && its == code && of->argument[i] != NULL; i++)
		size[i] = show_argument(text[i], frame, of->argument[i]);
	Py_XDECREF(its);
	first = records_of(size[0]), second = records_of(size[1]);
	uint64_t at = record_before(START, number, when, (uint32_t)(first | second << 4), first + second);
	record_value(record_value(at, text[0], size[0]), text[1], size[1]);
}

/* -- what happens -- */

/* The thread's calls have one more. When. */
static uint64_t begin_call(uint32_t number)
{
	uint64_t when = now_ns();

	if (own.depth < DEEP) {
		own.call[own.depth].began_ns = when;
		own.call[own.depth++].number = number;
	} else {
		own.too_deep++;
	}
	return when;
}

static void resume_call(uint32_t number)
{
	record_with(RESUME, number, begin_call(number), 0, NULL, 0);
}

/* Takes it from the thread's calls. One that is not the last is that of a program which switches stacks. */
static void end_call(enum kind kind, uint32_t number, uint32_t line, PyObject *value)
{
	struct code *of = &ring->code[number];
	uint64_t when = now_ns();
	char text[VALUE_BYTES * MOST_VALUES];
	int at = own.depth - 1;

	if (own.too_deep > 0) {
		own.too_deep--;
		at = -1;
	}
	while (at >= 0 && own.call[at].number != number)
		at--;
	if (at >= 0) {
		uint64_t took = when - own.call[at].began_ns;
		own.depth = at;
		if (kind != UNWIND)
			add(&of->total_ns, took);
		if (kind == RETURN && took > of->longest_ns)
			of->longest_ns = took;
	}
	if (kind != YIELD)
		add(kind == RETURN ? &of->returned : &of->unwound, 1);
	record_with(kind, number, when, line, text, value == NULL ? 0 : show(text, text_of(value)));
}

static PyObject *answer(PyObject *with)
{
	Py_INCREF(with);
	return with;
}

static PyObject *on_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self, (void)count;
	if (known[place_of(args[0])].code == NULL && !admit(args[0]))
		return answer(disable);
	size_t place = place_of(args[0]);
	uint32_t number = known[place].number;
	if (is_limited && ring->code[number].calls >= LIMIT) {
		if (ring->code[number].over_ns == 0)
			ring->code[number].over_ns = now_ns();
		return answer(disable);
	}
	add(&ring->code[number].calls, 1);
	if (known[place].asked == 0)
		record_with(START, number, begin_call(number), 0, NULL, 0);
	else
		record_start(&asked[known[place].asked - 1], args[0], number, begin_call(number));
	return answer(Py_None);
}

/* Calls of a limited function that are open when it has had enough have no end: who could tell them from later ones? */
static int is_recorded(size_t place)
{
	return known[place].code != NULL && ring->code[known[place].number].over_ns == 0;
}

static PyObject *of_known(enum kind kind, PyObject *code, PyObject *value)
{
	size_t place = place_of(code);

	if (!is_recorded(place)) /* it began without being recorded */
		return answer(disable);
	if (kind == RESUME)
		resume_call(known[place].number);
	else
		end_call(kind, known[place].number, 0, value);
	return answer(Py_None);
}

static PyObject *on_resume(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self, (void)count;
	return of_known(RESUME, args[0], NULL);
}

static PyObject *on_return(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self;
	return of_known(RETURN, args[0], shows_values && count > 2 ? args[2] : NULL);
}

static PyObject *on_yield(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self, (void)count;
	return of_known(YIELD, args[0], NULL);
}

static uint32_t line_of(PyObject *code, PyObject *offset)
{
	int line = PyCode_Addr2Line == NULL ? 0 : PyCode_Addr2Line(code, (int)PyLong_AsLong(offset));

	return line > 0 ? (uint32_t)line & 0xffffff : 0;
}

/* These three can't be switched off for a function. */
static PyObject *on_throw(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	size_t place = place_of(args[0]);

	(void)self, (void)count;
	if (is_recorded(place))
		resume_call(known[place].number);
	return answer(Py_None);
}

static PyObject *on_unwind(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	size_t place = place_of(args[0]);

	(void)self;
	if (is_recorded(place))
		end_call(UNWIND, known[place].number, count > 1 ? line_of(args[0], args[1]) : 0, NULL);
	own.passing = count > 2 ? args[2] : NULL;
	return answer(Py_None);
}

/* Whether an exception has come through another frame than the one that it is in. */
static int has_passed(PyObject *exception)
{
	PyObject *first = PyException_GetTraceback(exception);
	int result = first != NULL && is_exactly(first, &PyTraceBack_Type) && ((struct step *)first)->next != NULL;

	Py_XDECREF(first);
	return result;
}

/*
 * Each frame that an exception passes tells it, right after the one within it was left: only the first one counts.
 * One that C code has caught meanwhile can have left its address to another one.
 */
static PyObject *on_raise(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	size_t place = place_of(args[0]);
	int passes = count > 2 && own.passing == args[2] && has_passed(args[2]);

	(void)self;
	own.passing = NULL;
	if (count > 2 && !passes && is_recorded(place) && PyType_GetName != NULL) {
		char type[VALUE_BYTES * MOST_VALUES];
		size_t size = show(type, PyType_GetName(Py_TYPE(args[2])));
		record_with(RAISE, known[place].number, now_ns(), line_of(args[0], args[1]), type, size);
	}
	return answer(Py_None);
}

#include "bursts.h"

/* -- the begin -- */

static const struct {
	const char *event;
	PyMethodDef method;
} callbacks[] = {
	{ "PY_START", { "start", (PyCFunction)(void (*)(void))on_start, FASTCALL, NULL } },
	{ "PY_RESUME", { "resume", (PyCFunction)(void (*)(void))on_resume, FASTCALL, NULL } },
	{ "PY_RETURN", { "return", (PyCFunction)(void (*)(void))on_return, FASTCALL, NULL } },
	{ "PY_YIELD", { "yield", (PyCFunction)(void (*)(void))on_yield, FASTCALL, NULL } },
	{ "PY_THROW", { "throw", (PyCFunction)(void (*)(void))on_throw, FASTCALL, NULL } },
	{ "PY_UNWIND", { "unwind", (PyCFunction)(void (*)(void))on_unwind, FASTCALL, NULL } },
	{ "RAISE", { "raise", (PyCFunction)(void (*)(void))on_raise, FASTCALL, NULL } }, /* the last: not always */
};

/* A number of a tool that no kind of tool has for itself, if it is free. */
static int take_tool(PyObject *monitoring)
{
	for (int tool = 4; tool >= 3; tool--) {
		PyObject *taken = PyObject_CallMethod(monitoring, "use_tool_id", "is", tool, "joblens");
		Py_XDECREF(taken);
		if (taken != NULL)
			return tool;
		PyErr_Clear();
	}
	return -1;
}

static void monitor(PyObject *monitoring)
{
	int tool = take_tool(monitoring);
	size_t wanted = sizeof callbacks / sizeof *callbacks - !shows_raised;
	long all = 0;
	PyObject *events = attribute(monitoring, "events"), *done;

	disable = attribute(monitoring, "DISABLE");
	for (size_t i = 0; i < wanted && tool >= 0 && disable != NULL; i++) {
		PyObject *event = attribute(events, callbacks[i].event);
		PyObject *function = PyCFunction_NewEx((PyMethodDef *)&callbacks[i].method, NULL, NULL);
		long bit = event == NULL ? 0 : PyLong_AsLong(event);
		done = function == NULL ? NULL :
					  PyObject_CallMethod(monitoring, "register_callback", "ilO", tool, bit, function);
		all |= done == NULL ? 0 : bit;
		PyErr_Clear();
		Py_XDECREF(done);
		Py_XDECREF(function);
		Py_XDECREF(event);
	}
	Py_XDECREF(events);
	if (all == 0)
		return;
	done = PyObject_CallMethod(monitoring, "set_events", "il", tool, all);
	PyErr_Clear();
	Py_XDECREF(done);
}

/* The descriptor that comes with the answer, and in `reply` the answer; -1 if there is none. */
static int receive(int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} rights;
	struct iovec text = { reply, sizeof reply - 1 };
	struct msghdr message = {
		.msg_iov = &text, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights
	};
	ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *with = length < 0 ? NULL : CMSG_FIRSTHDR(&message);
	int given = -1;

	if (with != NULL && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS)
		memcpy(&given, CMSG_DATA(with), sizeof given);
	reply[length < 0 ? 0 : length] = '\0';
	return given;
}

/* Asks joblensd for a ring, with the version of this Python. It refuses those that can't be recorded, and says so. */
static int ask(const char *version)
{
	char request[64];
	int length = snprintf(request, sizeof request, "joblens/1%cpython%cversion=%.8s%c", 0, 0, version, 0);
	int fd = ask_joblensd(request, (size_t)length, BUDGET_MS);

	if (fd < 0)
		return -1;
	int given = receive(fd);
	close(fd);
	return given;
}

/* `FUNCTION,ARGUMENT,ARGUMENT`, which is taken apart. */
static void understand_asked(char *at, struct asked *to)
{
	to->function = at;
	for (size_t i = 0; i < MOST_ARGUMENTS && (at = strchr(at, ',')) != NULL; i++) {
		*at++ = '\0';
		size_t length = strcspn(at, ",");
		to->argument[i] = PyUnicode_DecodeUTF8(at, (Py_ssize_t)length, "replace");
		PyErr_Clear();
	}
}

/*
 * Patterns of files are in fields `file0=` and so on, functions with arguments in `call0=`; neither of them: all
 * files. What else is to be recorded has a field each.
 */
static void understand(void)
{
	size_t found = 0, functions = 0;

	for (char *at = reply; at < reply + sizeof reply - 1; at += strlen(at) + 1) {
		shows_values |= strncmp(at, "values=", 7) == 0;
		shows_raised |= strncmp(at, "raised=", 7) == 0;
		is_limited |= strncmp(at, "limited=", 8) == 0;
		if (strncmp(at, "file", 4) == 0 && strchr(at, '=') != NULL && found < MOST_PATTERNS)
			patterns[found++] = strchr(at, '=') + 1;
	}
	for (char *at = reply, *next; at < reply + sizeof reply - 1; at = next) {
		next = at + strlen(at) + 1; /* it is cut into pieces */
		if (strncmp(at, "call", 4) == 0 && strchr(at, '=') != NULL && functions < MOST_ASKED)
			understand_asked(strchr(at, '=') + 1, &asked[functions++]);
	}
}

static int begin(PyObject *module)
{
	static int is_there;
	char version[16] = "";
	PyObject *monitoring = PySys_GetObject("monitoring");

	(void)module;
	if (is_there)
		return 0;
	is_there = 1;
	snprintf(version, sizeof version, "%.8s", Py_GetVersion());
	version[strspn(version, "0123456789.")] = '\0';
	is_of_11 = strncmp(version, "3.11", 4) == 0;
	int fd = ask(version);
	if (fd < 0)
		return 0;
	void *mapped = MAP_FAILED;
	if (lseek(fd, 0, SEEK_END) == (off_t)sizeof(struct ring))
		mapped = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped == MAP_FAILED)
		return 0;
	ring = mapped;
	understand();
	pthread_atfork(NULL, NULL, forked);
	if (monitoring != NULL)
		monitor(monitoring);
	else
		begin_bursts();
	PyErr_Clear();
	return 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, begin }, { 0, NULL } };
static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "joblens_calls", .m_slots = slots,
};

PyMODINIT_FUNC PyInit_joblens_calls(void)
{
	return PyModuleDef_Init(&definition);
}
