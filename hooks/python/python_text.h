/*
 * Bounded texts, and what Python itself keeps of objects and tracebacks: no code of the job's runs for it.
 */
#ifndef PYTHON_TEXT_H
#define PYTHON_TEXT_H

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 400 }; /* bytes of a file's, a function's and a type's name */

struct text {
	char *bytes;
	size_t used, size;
};

/* At most `most` bytes. What doesn't fit is left out, from a character on. */
static void add_bytes(struct text *to, const char *bytes, size_t length, size_t most)
{
	size_t room = to->size - to->used;

	if (room > most)
		room = most;
	if (length > room)
		for (length = room; length && ((unsigned char)bytes[length] & 0xc0) == 0x80;)
			length--;
	if (length)
		memcpy(to->bytes + to->used, bytes, length);
	to->used += length;
}

static void add(struct text *to, const char *words)
{
	add_bytes(to, words, strlen(words), strlen(words));
}

static void add_number(struct text *to, long number)
{
	char digits[24];

	snprintf(digits, sizeof digits, "%ld", number);
	add(to, digits);
}

/* An exact str alone: a class of the job's own could run code. False if it is none. */
static int add_str(struct text *to, PyObject *value, size_t most)
{
	char *bytes;
	Py_ssize_t length;

	if (value == NULL || (PyObject *)Py_TYPE(value) != (PyObject *)&PyUnicode_Type)
		return 0;
	PyObject *encoded = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
	if (encoded == NULL || PyBytes_AsStringAndSize(encoded, &bytes, &length) < 0) {
		PyErr_Clear();
		Py_XDECREF(encoded);
		return 0;
	}
	add_bytes(to, bytes, (size_t)length, most);
	Py_DECREF(encoded);
	return 1;
}

static PyObject *attribute(PyObject *of, const char *name)
{
	PyObject *found = of ? PyObject_GetAttrString(of, name) : NULL;

	if (found == NULL)
		PyErr_Clear();
	return found;
}

/* An attribute as the type that defines it in C keeps it, whatever a class of the job's makes of its name. */
static PyObject *own_attribute(PyObject *type, PyObject *of, const char *name)
{
	PyObject *descriptor = attribute(type, name), *found = NULL;

	if (descriptor != NULL)
		found = PyObject_CallMethod(descriptor, "__get__", "OO", of, type);
	if (found == NULL)
		PyErr_Clear();
	Py_XDECREF(descriptor);
	return found;
}

/* The same of a class, as `type` keeps it. */
static PyObject *class_attribute(PyObject *class, const char *name)
{
	PyObject *names = attribute((PyObject *)&PyType_Type, "__dict__"), *found = NULL;
	PyObject *descriptor = names == NULL ? NULL : PyMapping_GetItemString(names, name);

	if (descriptor != NULL)
		found = PyObject_CallMethod(descriptor, "__get__", "OO", class, (PyObject *)Py_TYPE(class));
	if (found == NULL)
		PyErr_Clear();
	Py_XDECREF(descriptor);
	Py_XDECREF(names);
	return found;
}

static int is_exactly(PyObject *value, PyTypeObject *type)
{
	return Py_TYPE(value) == type;
}

/* `module.Type` of a value, as Python prints it. */
static void add_type(struct text *to, PyObject *value)
{
	PyObject *type = (PyObject *)Py_TYPE(value);
	PyObject *dict = class_attribute(type, "__dict__");
	PyObject *module = dict == NULL ? NULL : PyMapping_GetItemString(dict, "__module__");
	PyErr_Clear();
	PyObject *name = class_attribute(type, "__qualname__");
	size_t before = to->used;

	if (add_str(to, module, MAX_NAME)) {
		size_t length = to->used - before;
		if ((length == 8 && !memcmp(to->bytes + before, "builtins", 8)) ||
		    (length == 8 && !memcmp(to->bytes + before, "__main__", 8)))
			to->used = before;
		else
			add(to, ".");
	}
	if (!add_str(to, name, MAX_NAME))
		add(to, "an object");
	Py_XDECREF(module);
	Py_XDECREF(name);
	Py_XDECREF(dict);
}

/* A step of a traceback as Python has it in memory, the same from 3.6 to 3.14. Its attributes would be told to
 * audit hooks of the job's. */
struct step {
	PyObject_HEAD
	struct step *next;
	PyObject *frame;
	int instruction, line;
};

/* Whether this Python's have that layout, as far as their size tells. */
static int is_known_step(void)
{
	PyObject *basic = attribute((PyObject *)&PyTraceBack_Type, "__basicsize__");
	int result = basic != NULL && PyLong_AsLong(basic) == (long)sizeof(struct step);

	Py_XDECREF(basic);
	return result;
}

/* PyFrame_GetCode, of 3.9 and newer, which some headers have with another type. */
PyObject *code_of(PyObject *frame) __asm__("PyFrame_GetCode") __attribute__((weak));

/* A frame of 3.8. */
struct old_frame {
	PyObject_VAR_HEAD
	PyObject *back, *code;
};

/* A new reference. */
static PyObject *code_of_frame(PyObject *frame)
{
	PyObject *code = code_of != NULL ? code_of(frame) : ((struct old_frame *)frame)->code;

	if (code_of == NULL)
		Py_INCREF(code);
	return code;
}

/* Of a step of a traceback the code's file and function, and the line; new references. */
static void where(struct step *step, PyObject **file, PyObject **function, long *line)
{
	PyObject *code = code_of_frame(step->frame);
	PyObject *number = attribute((PyObject *)step, "tb_lineno");

	*file = attribute(code, "co_filename");
	*function = attribute(code, "co_name");
	*line = number != NULL && is_exactly(number, &PyLong_Type) ? PyLong_AsLong(number) : 0;
	PyErr_Clear();
	Py_XDECREF(number);
	Py_XDECREF(code);
}

/* The first step of an exception's traceback, which the exception keeps; NULL if it has none. */
static struct step *first_step(PyObject *exception)
{
	PyObject *first = PyException_GetTraceback(exception);

	Py_XDECREF(first);
	return first != NULL && is_exactly(first, &PyTraceBack_Type) ? (struct step *)first : NULL; /* it can be None */
}

#endif
