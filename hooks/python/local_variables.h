/*
 * The local variables of an exception's frames as bounded lines, and no code of the job's runs for them.
 *
 * Values of plain types are shown, of containers type and length, of all else the type's name. What a frame has is read
 * where Python keeps it: its attribute f_locals would let go of values that it held before, whose ends may be code.
 */
#ifndef LOCAL_VARIABLES_H
#define LOCAL_VARIABLES_H

#include <stddef.h>
#include "python_text.h"

enum {
	MOST_FRAMES = 16,    /* the innermost ones */
	MOST_VARIABLES = 24, /* of a frame */
	MOST_LOOKED_AT = 256, /* names of a frame: Python looks for each one among all of them */
	MOST_GLOBALS = 16384, /* of a module, most of them functions */
	MAX_CHARACTERS = 120 /* of a text that is a value */
};

/* Not in the limited API of 3.6; each Python from 3.8 to 3.11 has the cells, each newer one PyFrame_GetVar. */
PyObject *variable_of(PyObject *frame, PyObject *name) __asm__("PyFrame_GetVar") __attribute__((weak));
PyObject *in_cell(PyObject *cell) __asm__("PyCell_Get") __attribute__((weak));
extern PyTypeObject type_of_cells __asm__("PyCell_Type") __attribute__((weak));
extern PyTypeObject type_of_functions __asm__("PyFunction_Type") __attribute__((weak));

/* Frames of 3.8 and 3.9, of 3.10, and of 3.11, up to what has no fixed size. */
struct frame_of_8 {
	PyObject_VAR_HEAD
	PyObject *back, *code, *builtins, *globals, *locals, **stack, **top, *trace;
	char traces[2];
	PyObject *generator;
	int last, line, block;
	char executing;
	int blocks[20][3];
	PyObject *slots[1];
};

struct frame_of_10 {
	PyObject_VAR_HEAD
	PyObject *back, *code, *builtins, *globals, *locals, **stack, *trace;
	int depth;
	char traces[2];
	PyObject *generator;
	int last, line, block;
	char state;
	int blocks[20][3];
	PyObject *slots[1];
};

struct inner_frame_of_11 {
	PyObject *function, *globals, *builtins, *locals, *code, *frame;
	void *previous, *instruction;
	int top;
	char is_entry, owner;
	PyObject *slots[1];
};

struct frame_of_11 {
	PyObject_HEAD
	PyObject *back;
	struct inner_frame_of_11 *inner;
	PyObject *trace;
	int line;
	char flags[3];
	PyObject *own[1];
};

/* A frame's variables: where Python 3.8 to 3.11 has them, and whether an argument can be in a cell there, as in 3.11. */
struct slots {
	PyObject **first;
	int has_cells_first;
};

/* No slots if its layout is none that is known here. */
static struct slots slots_of(PyObject *frame)
{
	struct slots found = { NULL, 0 };
	PyObject *basic = attribute((PyObject *)Py_TYPE(frame), "__basicsize__");
	size_t size = basic == NULL ? 0 : (size_t)PyLong_AsLong(basic);

	Py_XDECREF(basic);
	if (size == sizeof(struct frame_of_8)) {
		found.first = ((struct frame_of_8 *)frame)->slots;
	} else if (size == sizeof(struct frame_of_10)) {
		found.first = ((struct frame_of_10 *)frame)->slots;
	} else if (size == offsetof(struct frame_of_11, own) + offsetof(struct inner_frame_of_11, slots)) {
		found.first = ((struct frame_of_11 *)frame)->inner->slots;
		found.has_cells_first = 1;
	}
	return found;
}

/* `<list of 3>`, without asking anything of a class of the job's. */
static void add_kind(struct text *to, PyObject *value)
{
	Py_ssize_t length = -1;

	if (is_exactly(value, &PyList_Type))
		length = PyList_Size(value);
	else if (is_exactly(value, &PyTuple_Type))
		length = PyTuple_Size(value);
	else if (is_exactly(value, &PyDict_Type))
		length = PyDict_Size(value);
	else if (is_exactly(value, &PySet_Type) || is_exactly(value, &PyFrozenSet_Type))
		length = PySet_Size(value);
	else if (is_exactly(value, &PyBytes_Type))
		length = PyBytes_Size(value);
	else if (is_exactly(value, &PyByteArray_Type))
		length = PyByteArray_Size(value);
	add(to, "<");
	add_type(to, value);
	if (length >= 0) {
		add(to, " of ");
		add_number(to, (long)length);
	}
	add(to, ">");
}

/* Whether its repr() is Python's own, and short. */
static int is_short(PyObject *value)
{
	int overflows = 0;

	if (is_exactly(value, &PyLong_Type))
		PyLong_AsLongLongAndOverflow(value, &overflows);
	return value == Py_None || is_exactly(value, &PyBool_Type) || is_exactly(value, &PyFloat_Type) ||
	       is_exactly(value, &PyComplex_Type) || (is_exactly(value, &PyLong_Type) && !overflows);
}

/* What modules, functions and classes are called is in the source. Names with dots are Python's own. */
static int is_shown(PyObject *name, PyObject *value)
{
	PyObject *begin = is_exactly(name, &PyUnicode_Type) ? PyUnicode_Substring(name, 0, 2) : NULL;
	int is_special = begin == NULL || PyUnicode_CompareWithASCIIString(begin, "__") == 0 ||
			 PyUnicode_CompareWithASCIIString(begin, ".0") == 0;

	Py_XDECREF(begin);
	return !is_special && !is_exactly(value, &PyModule_Type) && !is_exactly(value, &PyCFunction_Type) &&
	       !is_exactly(value, &type_of_functions) &&
	       !(PyType_GetFlags(Py_TYPE(value)) & Py_TPFLAGS_TYPE_SUBCLASS);
}

/* Ends the line that begins there, or takes it away: there is no room for all of it. */
static void end_line(struct text *to, size_t begin)
{
	add(to, "\n");
	if (to->used == begin || to->bytes[to->used - 1] != '\n')
		to->used = begin;
}

/* A line `=NAME=VALUE`, or `~NAME=VALUE` if the value goes on: whole, or not at all. */
static void add_variable(struct text *to, PyObject *name, PyObject *value)
{
	size_t before = to->used;
	int is_text = is_exactly(value, &PyUnicode_Type);
	int is_cut = is_text && PyUnicode_GetLength(value) > MAX_CHARACTERS;

	add(to, is_cut ? "~" : "=");
	add_str(to, name, MAX_NAME);
	add(to, "=");
	if (is_text || is_short(value)) {
		PyObject *begin = is_cut ? PyUnicode_Substring(value, 0, MAX_CHARACTERS) : NULL;
		PyObject *shown = is_cut && begin == NULL ? NULL : PyObject_Repr(is_cut ? begin : value);
		PyErr_Clear();
		add_str(to, shown, to->size);
		Py_XDECREF(shown);
		Py_XDECREF(begin);
	} else {
		add_kind(to, value);
	}
	end_line(to, before);
}

/* The value in a frame's variable, a new reference; NULL if it has none now. */
static PyObject *value_of(PyObject *frame, PyObject *name, PyObject *slot)
{
	PyObject *value = slot;

	if (variable_of != NULL)
		value = variable_of(frame, name);
	else if (slot != NULL && is_exactly(slot, &type_of_cells))
		value = in_cell(slot);
	else
		Py_XINCREF(value);
	PyErr_Clear();
	return value;
}

static int has(PyObject *names, PyObject *name)
{
	Py_ssize_t count = PyTuple_Size(names);

	for (Py_ssize_t i = 0; i < count; i++)
		if (PyUnicode_Compare(PyTuple_GetItem(names, i), name) == 0)
			return 1;
	return 0;
}

/* Those of a function: arguments first, then in the order of their names in the code, then those of outer functions. */
static void add_of_function(struct text *to, PyObject *frame, PyObject *code)
{
	static const char *const kinds[] = { "co_varnames", "co_cellvars", "co_freevars" };
	struct slots slots = variable_of == NULL ? slots_of(frame) : (struct slots){ NULL, 1 };
	PyObject *own = attribute(code, "co_varnames");
	Py_ssize_t slot = 0;
	int shown = 0, looked_at = 0;

	for (size_t kind = 0; kind < 3 && own != NULL && (variable_of != NULL || slots.first != NULL); kind++) {
		PyObject *names = attribute(code, kinds[kind]);
		for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names) && looked_at < MOST_LOOKED_AT;
		     i++, looked_at++) {
			PyObject *name = PyTuple_GetItem(names, i);
			if (kind == 1 && slots.has_cells_first && has(own, name))
				continue;
			PyObject *kept = slots.first == NULL ? NULL : slots.first[slot++];
			if (shown >= MOST_VARIABLES)
				continue;
			PyObject *value = value_of(frame, name, kept);
			if (value != NULL && is_shown(name, value)) {
				add_variable(to, name, value);
				shown++;
			}
			Py_XDECREF(value);
		}
		Py_XDECREF(names);
	}
	Py_XDECREF(own);
}

/* Those of a script or module. */
static void add_of_module(struct text *to, PyObject *frame)
{
	PyObject *all = attribute(frame, "f_globals"), *name, *value;
	Py_ssize_t at = 0;
	int shown = 0, looked_at = 0;

	while (all != NULL && is_exactly(all, &PyDict_Type) && shown < MOST_VARIABLES &&
	       looked_at++ < MOST_GLOBALS && PyDict_Next(all, &at, &name, &value)) {
		Py_INCREF(name);
		Py_INCREF(value);
		if (is_shown(name, value)) {
			add_variable(to, name, value);
			shown++;
		}
		Py_DECREF(value);
		Py_DECREF(name);
	}
	Py_XDECREF(all);
}

/* A line `@FUNCTION, FILE:LINE`, and a line for each variable. */
static void add_of_step(struct text *to, struct step *step)
{
	PyObject *file, *function, *code = code_of_frame(step->frame);
	PyObject *flags = attribute(code, "co_flags");
	long line, is_function = flags != NULL && (PyLong_AsLong(flags) & 1); /* CO_OPTIMIZED */

	size_t before = to->used;

	where(step, &file, &function, &line);
	add(to, "@");
	add_str(to, function, MAX_NAME);
	add(to, ", ");
	add_str(to, file, MAX_NAME);
	add(to, ":");
	add_number(to, line);
	end_line(to, before);
	if (is_function)
		add_of_function(to, step->frame, code);
	else if (function != NULL && is_exactly(function, &PyUnicode_Type) &&
		 PyUnicode_CompareWithASCIIString(function, "<module>") == 0)
		add_of_module(to, step->frame);
	Py_XDECREF(flags);
	Py_XDECREF(code);
	Py_XDECREF(file);
	Py_XDECREF(function);
}

/* Of the innermost frames that the exception has passed, the innermost first. */
static void add_variables(struct text *to, PyObject *exception)
{
	struct step *last[MOST_FRAMES];
	size_t count = 0;

	for (struct step *step = first_step(exception); step != NULL; step = step->next)
		last[count++ % MOST_FRAMES] = step;
	for (size_t i = 0; i < count && i < MOST_FRAMES; i++)
		add_of_step(to, last[(count - 1 - i) % MOST_FRAMES]);
}

#endif
