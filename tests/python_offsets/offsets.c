/* Prints where this version of CPython keeps what names the lines that its threads are at: `group name offset` a line.
 * It is compiled against the version's own headers: make_table says how.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#if PY_VERSION_HEX >= 0x030d0000
#include <internal/pycore_runtime.h>
#elif PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#elif PY_VERSION_HEX >= 0x03080000
#include <internal/pycore_pystate.h>
#elif PY_VERSION_HEX >= 0x03070000
#include <internal/mem.h>
#include <internal/pystate.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#endif

#define SHOW(name, offset) printf("%s %zu\n", name, (size_t)(offset))

/* Which bit of a text's state is the first that says how wide its characters are. */
static unsigned int kind_bit(void)
{
	static PyASCIIObject text;
	unsigned int state = 0;

	text.state.kind = 1;
	memcpy(&state, &text.state, sizeof(state) < sizeof(text.state) ? sizeof(state) : sizeof(text.state));
	return __builtin_ctz(state);
}

int main(void)
{
	SHOW("text_kind_bit", kind_bit());
#if PY_VERSION_HEX >= 0x030d0000
	/* the program says itself where they are: this is where it says it */
#define AT(name, group, member) SHOW(name, offsetof(_Py_DebugOffsets, group.member))
	AT("interpreters", runtime_state, interpreters_head);
	AT("interpreter_next", interpreter_state, next);
	AT("threads", interpreter_state, threads_head);
	AT("thread_next", thread_state, next);
	AT("thread_interpreter", thread_state, interp);
	AT("thread_frame", thread_state, current_frame);
	AT("thread_id", thread_state, thread_id);
	AT("frame_previous", interpreter_frame, previous);
	AT("frame_code", interpreter_frame, executable);
	AT("frame_instruction", interpreter_frame, instr_ptr);
	AT("frame_owner", interpreter_frame, owner);
	AT("code_filename", code_object, filename);
	AT("code_name", code_object, qualname);
	AT("code_line_table", code_object, linetable);
	AT("code_first_line", code_object, firstlineno);
	AT("code_instructions", code_object, co_code_adaptive);
	AT("object_type", pyobject, ob_type);
	AT("type_name", type_object, tp_name);
	AT("bytes_size", bytes_object, ob_size);
	AT("bytes_data", bytes_object, ob_sval);
	AT("text_state", unicode_object, state);
	AT("text_length", unicode_object, length);
	AT("text_data", unicode_object, asciiobject_size);
#else
#if PY_VERSION_HEX >= 0x03070000
	SHOW("interpreters", offsetof(_PyRuntimeState, interpreters.head));
#else
	SHOW("interpreters", 0); /* a variable of its own, interp_head */
#endif
	SHOW("interpreter_next", offsetof(PyInterpreterState, next));
#if PY_VERSION_HEX >= 0x030b0000
	SHOW("threads", offsetof(PyInterpreterState, threads.head));
#else
	SHOW("threads", offsetof(PyInterpreterState, tstate_head));
#endif
	SHOW("thread_next", offsetof(PyThreadState, next));
	SHOW("thread_interpreter", offsetof(PyThreadState, interp));
#if PY_VERSION_HEX >= 0x030b0000
	SHOW("thread_frame", offsetof(PyThreadState, cframe));
	SHOW("cframe_frame", offsetof(_PyCFrame, current_frame));
#else
	SHOW("thread_frame", offsetof(PyThreadState, frame));
#endif
	SHOW("thread_id", offsetof(PyThreadState, thread_id));
#if PY_VERSION_HEX >= 0x030b0000
	SHOW("frame_previous", offsetof(_PyInterpreterFrame, previous));
	SHOW("frame_code", offsetof(_PyInterpreterFrame, f_code));
	SHOW("frame_instruction", offsetof(_PyInterpreterFrame, prev_instr));
	SHOW("frame_owner", offsetof(_PyInterpreterFrame, owner));
#if PY_VERSION_HEX < 0x030c0000
	SHOW("frame_is_entry", offsetof(_PyInterpreterFrame, is_entry));
#endif
	SHOW("code_name", offsetof(PyCodeObject, co_qualname));
	SHOW("code_line_table", offsetof(PyCodeObject, co_linetable));
	SHOW("code_instructions", offsetof(PyCodeObject, co_code_adaptive));
#else
	SHOW("frame_previous", offsetof(PyFrameObject, f_back));
	SHOW("frame_code", offsetof(PyFrameObject, f_code));
	SHOW("frame_instruction", offsetof(PyFrameObject, f_lasti));
	SHOW("code_name", offsetof(PyCodeObject, co_name));
#if PY_VERSION_HEX >= 0x030a0000
	SHOW("code_line_table", offsetof(PyCodeObject, co_linetable));
#else
	SHOW("code_line_table", offsetof(PyCodeObject, co_lnotab));
#endif
#endif
	SHOW("code_filename", offsetof(PyCodeObject, co_filename));
	SHOW("code_first_line", offsetof(PyCodeObject, co_firstlineno));
	SHOW("object_type", offsetof(PyObject, ob_type));
	SHOW("type_name", offsetof(PyTypeObject, tp_name));
	SHOW("bytes_size", offsetof(PyVarObject, ob_size));
	SHOW("bytes_data", offsetof(PyBytesObject, ob_sval));
	SHOW("text_state", offsetof(PyASCIIObject, state));
	SHOW("text_length", offsetof(PyASCIIObject, length));
	SHOW("text_data", sizeof(PyASCIIObject));
#endif
	return 0;
}
