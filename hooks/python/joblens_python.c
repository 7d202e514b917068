/*
 * Tells joblensd of the exception that ends a Python: the whole traceback, before Python prints it.
 *
 * sitecustomize.py beside this file loads it into a Python of a job. Nothing here runs until an exception has left
 * the outermost frame: Python then raises the audit event `sys.excepthook` (3.8 and newer), and an audit hook in C
 * costs other events some nanoseconds. Only what Python itself keeps of frames and exceptions is read, so that no
 * code of the job runs a second time: a text that only its own __str__ knows is left out. If joblensd answers that the
 * job wants local variables, they follow (local_variables.h).
 *
 * One binary serves all versions, by the limited API of 3.6. It links to no libpython. It prints nothing, takes no
 * path from the environment, and whatever fails, Python goes on as it would have.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03060000
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "ask_joblensd.h"
#include "local_variables.h"
#include "python_text.h"

#ifndef JOBLENS_BUDGET_MS
#define JOBLENS_BUDGET_MS 500
#endif

enum {
	BUDGET_MS = JOBLENS_BUDGET_MS, /* that a process which fails waits for joblensd's answer */
	MAX_TRACEBACK = 15000, /* bytes of UTF-8; with the rest it fits into one frame (control/frames.py) */
	MAX_OWN = 9000,        /* of them, of the exception that escapes; its causes share the rest */
	MAX_TEXT = 1500,       /* of an exception's text */
	MAX_LINE = 600,        /* of `type: text` in one line */
	MAX_CHAIN = 8,         /* exceptions: causes, and those in whose handling it was raised */
	END_FRAMES = 20,       /* frames at either end of a traceback that are kept */
	MAX_ITEMS = 8,         /* of a tuple or list that are shown */
	MAX_DEPTH = 3,
	MAX_VARIABLES = 12000, /* bytes of local variables */
	HEAD_BYTES = 15,       /* of a frame of joblens/2 */
	MOST_TOLD = 2, /* exceptions of one process: a program with Python in it can print them in a loop */
};

/* Whether the text of this value is made by Python's own code alone: all of it, or what add_value shows of it. */
static int is_plain(PyObject *value, int depth, int is_all)
{
	PyTypeObject *const types[] = { &PyUnicode_Type, &PyBytes_Type, &PyLong_Type, &PyFloat_Type, &PyBool_Type };

	if (value == Py_None)
		return 1;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (is_exactly(value, types[i]))
			return 1;
	int is_tuple = is_exactly(value, &PyTuple_Type);
	if (depth == MAX_DEPTH || (!is_tuple && !is_exactly(value, &PyList_Type)))
		return 0;
	Py_ssize_t count = is_tuple ? PyTuple_Size(value) : PyList_Size(value);
	if (count > MAX_ITEMS && is_all)
		return 0;
	for (Py_ssize_t i = 0; i < count && i < MAX_ITEMS; i++)
		if (!is_plain(is_tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i), depth + 1, is_all))
			return 0;
	return 1;
}

/* Of a str at most MAX_TEXT characters: what encodes it makes a copy. */
static void add_head(struct text *to, PyObject *text)
{
	if (text != NULL && is_exactly(text, &PyUnicode_Type) && PyUnicode_GetLength(text) > MAX_TEXT) {
		PyObject *head = PyUnicode_Substring(text, 0, MAX_TEXT);
		add_str(to, head, MAX_TEXT);
		Py_XDECREF(head);
		PyErr_Clear();
	} else {
		add_str(to, text, MAX_TEXT);
	}
}

/* A plain value as repr() has it, but the first MAX_ITEMS of a tuple or list. */
static void add_value(struct text *to, PyObject *value)
{
	int is_tuple = is_exactly(value, &PyTuple_Type);

	if (!is_tuple && !is_exactly(value, &PyList_Type)) {
		PyObject *shown = PyObject_Repr(value);
		PyErr_Clear();
		add_head(to, shown);
		Py_XDECREF(shown);
		return;
	}
	Py_ssize_t count = is_tuple ? PyTuple_Size(value) : PyList_Size(value);
	add(to, is_tuple ? "(" : "[");
	for (Py_ssize_t i = 0; i < count && i < MAX_ITEMS; i++) {
		add(to, i > 0 ? ", " : "");
		add_value(to, is_tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i));
	}
	add(to, count > MAX_ITEMS ? ", ..." : is_tuple && count == 1 ? "," : "");
	add(to, is_tuple ? ")" : "]");
}

/* The arguments of an exception whose own text would show too much, if they are plain as far as they are shown. */
static void add_some_of(struct text *to, PyObject *args)
{
	size_t end = to->used + MAX_TEXT;
	struct text part = { to->bytes, to->used, end < to->size ? end : to->size };

	if (!is_exactly(args, &PyTuple_Type) || !is_plain(args, 0, 0))
		return;
	add(&part, ": ");
	add_value(&part, PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : args);
	to->used = part.used;
}

/* Whether all that the built-in exceptions' own texts are made of is plain. */
static int parts_are_plain(PyObject *exception, PyObject *args)
{
	static const char *const of_os[] = { "errno", "strerror", "filename", "filename2" };
	static const char *const of_syntax[] = { "msg", "filename", "lineno" };
	static const char *const of_import[] = { "msg" };
	static const char *const of_unicode[] = { "encoding", "object", "start", "end", "reason" };
	const struct {
		PyObject *type;
		const char *const *names;
		size_t count;
	} kinds[] = {
		{ PyExc_OSError, of_os, 4 },
		{ PyExc_SyntaxError, of_syntax, 3 },
		{ PyExc_ImportError, of_import, 1 },
		{ PyExc_UnicodeEncodeError, of_unicode, 5 },
		{ PyExc_UnicodeDecodeError, of_unicode, 5 },
		{ PyExc_UnicodeTranslateError, of_unicode + 1, 4 },
	};

	if (args == NULL || !is_plain(args, 0, 1))
		return 0;
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		if (!PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)kinds[kind].type))
			continue;
		for (size_t i = 0; i < kinds[kind].count; i++) {
			PyObject *part = own_attribute(kinds[kind].type, exception, kinds[kind].names[i]);
			int plain = part == NULL || is_plain(part, 0, 1);
			Py_XDECREF(part);
			if (!plain)
				return 0;
		}
	}
	return 1;
}

/* Whether str() of the exception runs no code of the job: its __str__ is one that Python has in C, for exceptions.
 * That of `object`, which a class can have as its own, calls __repr__. */
static int str_is_pythons(PyObject *exception)
{
	PyObject *type = (PyObject *)Py_TYPE(exception), *slot = attribute(PyExc_BaseException, "__str__");
	PyObject *mro = class_attribute(type, "__mro__"), *found = NULL;
	int result = 0;

	for (Py_ssize_t i = 0; mro != NULL && slot != NULL && found == NULL && i < PyTuple_Size(mro); i++) {
		PyObject *dict = class_attribute(PyTuple_GetItem(mro, i), "__dict__");
		found = dict == NULL ? NULL : PyMapping_GetItemString(dict, "__str__");
		PyErr_Clear();
		Py_XDECREF(dict);
	}
	PyObject *of = found != NULL && slot != NULL && Py_TYPE(found) == Py_TYPE(slot) ?
			       attribute(found, "__objclass__") : NULL;
	if (of != NULL && PyType_Check(of))
		result = PyType_IsSubtype((PyTypeObject *)of, (PyTypeObject *)PyExc_BaseException);
	Py_XDECREF(of);
	Py_XDECREF(found);
	Py_XDECREF(slot);
	Py_XDECREF(mro);
	return result;
}

static void add_text(struct text *to, PyObject *exception)
{
	PyObject *args = own_attribute(PyExc_BaseException, exception, "args"), *text = NULL;

	if (args != NULL && parts_are_plain(exception, args))
		text = str_is_pythons(exception) ? PyObject_Str(exception) : PyObject_Repr(args);
	else if (args != NULL)
		add_some_of(to, args);
	PyErr_Clear();
	if (text != NULL && is_exactly(text, &PyUnicode_Type) && PyUnicode_GetLength(text) > 0) {
		add(to, ": ");
		add_head(to, text);
	}
	Py_XDECREF(text);
	Py_XDECREF(args);
}

static void add_step(struct text *to, struct step *step)
{
	PyObject *file, *function;
	long line;

	where(step, &file, &function, &line);
	add(to, "  File \"");
	add_str(to, file, MAX_NAME);
	add(to, "\", line ");
	add_number(to, line);
	add(to, ", in ");
	add_str(to, function, MAX_NAME);
	add(to, "\n");
	Py_XDECREF(file);
	Py_XDECREF(function);
}

/* The steps of a traceback, the innermost last. */
static void add_steps(struct text *to, PyObject *exception)
{
	long count = 0, at = 0;

	for (struct step *step = first_step(exception); step != NULL; step = step->next)
		count++;
	if (count == 0)
		return;
	add(to, "Traceback (most recent call last):\n");
	for (struct step *step = first_step(exception); step != NULL; step = step->next, at++) {
		if (at < END_FRAMES || at >= count - END_FRAMES)
			add_step(to, step);
		else if (at == END_FRAMES) {
			add(to, "  [");
			add_number(to, count - 2 * END_FRAMES);
			add(to, " more]\n");
		}
	}
}

static void add_exception(struct text *to, PyObject *exception)
{
	add_steps(to, exception);
	add_type(to, exception);
	add_text(to, exception);
	add(to, "\n");
}

/* The exception before this one, which caused it, or was being handled; NULL if there is none. A new reference. */
static PyObject *before(PyObject *exception, int *is_cause)
{
	PyObject *found = PyException_GetCause(exception);

	*is_cause = found != NULL;
	if (found != NULL)
		return found;
	PyObject *suppressed = own_attribute(PyExc_BaseException, exception, "__suppress_context__");
	if (suppressed == Py_False)
		found = PyException_GetContext(exception);
	Py_XDECREF(suppressed);
	return found;
}

/* As Python prints it, without lines of source: the causes first. */
static void add_chain(struct text *to, PyObject *exception, int depth)
{
	int is_cause;
	PyObject *earlier = depth < MAX_CHAIN ? before(exception, &is_cause) : NULL;

	if (earlier == NULL)
		return;
	if (earlier != exception) {
		add_chain(to, earlier, depth + 1);
		add_exception(to, earlier);
		add(to, is_cause ? "\nThe above exception was the direct cause of the following exception:\n\n" :
				   "\nDuring handling of the above exception, another exception occurred:\n\n");
	}
	Py_DECREF(earlier);
}

/* -- what is said to joblensd: one frame of joblens/2 (control/frames.py) -- */

static void add_length(struct text *to, size_t length)
{
	const unsigned char bytes[4] = { length & 255, length >> 8 & 255, length >> 16 & 255, length >> 24 & 255 };

	memcpy(to->bytes + to->used, bytes, 4);
	to->used += 4;
}

static void add_field(struct text *to, const char *name, const struct text *value)
{
	if (to->size - to->used < 8 + strlen(name) + value->used)
		return;
	if (*name) {
		add_length(to, strlen(name));
		memcpy(to->bytes + to->used, name, strlen(name));
		to->used += strlen(name);
	}
	add_length(to, value->used);
	memcpy(to->bytes + to->used, value->bytes, value->used);
	to->used += value->used;
}

/* Comes back when joblensd has heard it, when it won't, or when the time is up. Whether it has heard it. */
static int tell(const char *packet, size_t length, struct text *answer)
{
	int fd = ask_joblensd(packet, length, BUDGET_MS);

	answer->used = 0;
	if (fd < 0)
		return 0;
	ssize_t heard = recv(fd, answer->bytes, answer->size, 0);
	close(fd);
	answer->used = heard > 0 ? (size_t)heard : 0;
	return heard > 0;
}

/* The frame of a request whose fields are behind the first HEAD_BYTES; it takes as long as `tell`. */
static int send_frame(struct text *said, struct text *answer)
{
	size_t left = said->used - HEAD_BYTES, length = said->used;

	memcpy(said->bytes, "joblens/2\0Q", 11);
	said->used = 11;
	add_length(said, left);
	PyThreadState *saved = PyEval_SaveThread();
	int is_heard = tell(said->bytes, length, answer);
	PyEval_RestoreThread(saved);
	return is_heard;
}

static void add_place(struct text *to, PyObject *exception)
{
	PyObject *file, *function;
	struct step *last = first_step(exception);
	long line;

	if (last == NULL)
		return;
	while (last->next != NULL)
		last = last->next;
	where(last, &file, &function, &line);
	add_str(to, file, MAX_NAME);
	add(to, ":");
	add_number(to, line);
	Py_XDECREF(file);
	Py_XDECREF(function);
}

/* Whether a field of this name is in an answer. */
static int has_field(const struct text *answer, const char *name)
{
	char field[32];
	struct text wanted = { field, 0, sizeof field };

	add_length(&wanted, strlen(name));
	add(&wanted, name);
	return memmem(answer->bytes, answer->used, field, wanted.used) != NULL;
}

/* Of 3.10 and newer. What is allocated here must not be what lets Python look for garbage: its ends may be code. */
int disable_gc(void) __asm__("PyGC_Disable") __attribute__((weak));
int enable_gc(void) __asm__("PyGC_Enable") __attribute__((weak));

static int stop_gc(void)
{
	return disable_gc != NULL && enable_gc != NULL && disable_gc();
}

static void restore_gc(int was_enabled)
{
	if (was_enabled)
		enable_gc();
}

/* The local variables go nowhere but to a joblensd that has said that the job wants them. */
static void tell_variables(struct text *said, PyObject *exception, struct text *answer)
{
	static char lines[MAX_VARIABLES];
	struct text variables = { lines, 0, sizeof lines };
	const struct text verb = { "variables", 9, 9 };

	int was_enabled = stop_gc();
	add_variables(&variables, exception);
	restore_gc(was_enabled);
	if (variables.used == 0)
		return;
	said->used = HEAD_BYTES;
	add_field(said, "", &verb);
	add_field(said, "lines", &variables);
	send_frame(said, answer);
}

/* Whether joblensd has heard it. */
static int escaped(PyObject *exception)
{
	static char packet[16384 + HEAD_BYTES], own[MAX_OWN], all[MAX_TRACEBACK], line[MAX_LINE], place[MAX_NAME + 24];
	static char said_back[512];
	struct text itself = { own, 0, sizeof own }, whole = { all, 0, sizeof all - MAX_OWN };
	struct text type = { line, 0, sizeof line }, at = { place, 0, sizeof place };
	struct text said = { packet, HEAD_BYTES, sizeof packet }, answer = { said_back, 0, sizeof said_back };
	const struct text verb = { "raised", 6, 6 };

	int was_enabled = stop_gc(); /* not while it waits for an answer: other threads run then */
	add_exception(&itself, exception);
	add_chain(&whole, exception, 0);
	whole.size = sizeof all;
	add_bytes(&whole, own, itself.used, sizeof own);
	add_type(&type, exception);
	add_text(&type, exception);
	add_place(&at, exception);
	restore_gc(was_enabled);
	add_field(&said, "", &verb);
	add_field(&said, "line", &type);
	if (at.used)
		add_field(&said, "place", &at);
	add_field(&said, "traceback", &whole);
	if (!send_frame(&said, &answer))
		return 0;
	if (has_field(&answer, "variables"))
		tell_variables(&said, exception, &answer);
	return 1;
}

/* Whether Python goes on after it has printed an exception. */
static int is_interactive(void)
{
	PyObject *flag = attribute(PySys_GetObject("flags"), "interactive");
	int is_set = flag != NULL && is_exactly(flag, &PyLong_Type) && PyLong_AsLong(flag) > 0;

	Py_XDECREF(flag);
	return is_set || PySys_GetObject("ps1") != NULL;
}

/* An audit hook, PEP 578. What it returns lets everything happen. */
static int audit(const char *event, PyObject *args, void *data)
{
	static int is_within, told;
	static pid_t process;

	(void)data;
	if (event[0] != 's' || strcmp(event, "sys.excepthook") != 0)
		return 0;
	if (process != getpid()) { /* a child can be forked while another thread waits for an answer */
		process = getpid();
		is_within = told = 0;
	}
	if (is_within || told == MOST_TOLD)
		return 0;
	/* with a frame, something that goes on has printed an exception */
	if (PyEval_GetFrame() != NULL || is_interactive() || !PyTuple_Check(args) || PyTuple_Size(args) < 3)
		return 0;
	PyObject *exception = PyTuple_GetItem(args, 2);
	if (exception == NULL || !PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_BaseException)) {
		PyErr_Clear();
		return 0;
	}
	is_within = 1;
	told = escaped(exception) ? told + 1 : MOST_TOLD; /* who is not heard once does not wait again */
	PyErr_Clear();
	is_within = 0;
	return 0;
}

/* Of 3.8 and newer, and in no limited API. */
int PySys_AddAuditHook(int (*hook)(const char *event, PyObject *args, void *data), void *data) __attribute__((weak));

static int begin(PyObject *module)
{
	static int is_there;

	(void)module;
	if (PySys_AddAuditHook != NULL && !is_there && is_known_step()) {
		is_there = 1;
		if (PySys_AddAuditHook(audit, NULL) < 0)
			PyErr_Clear();
	}
	return 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, begin }, { 0, NULL } };
static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "joblens_python", .m_slots = slots,
};

PyMODINIT_FUNC PyInit_joblens_python(void)
{
	return PyModuleDef_Init(&definition);
}
