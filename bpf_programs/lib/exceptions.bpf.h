/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reads the type and the text of an exception of C++. Memory is read as far as it is there: nothing makes the thread wait. */
#ifndef JOBLENS_EXCEPTIONS_BPF_H
#define JOBLENS_EXCEPTIONS_BPF_H

#include "compat.bpf.h"
#include "joblens_exceptions.h"

enum {
	/* offsets in std::type_info and, of a class with one base, in its heirs (Itanium C++ ABI, 2.9) */
	NAME_OF_TYPE = 8,
	BASE_OF_TYPE = 16,
	TEXT_OF_EXCEPTION = 8,	/* of std::runtime_error and std::logic_error, in libstdc++ and in libc++ */
};

static __always_inline u64 word_at(u64 address)
{
	u64 value = 0;

	if (address)
		bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Of a class that has no base, or several, what lies behind is no type: its name is none that anybody knows. */
static __always_inline void read_types(struct cxx_exception *exception, u64 type)
{
	exception->name[0] = 0;
	exception->names[0] = word_at(type + NAME_OF_TYPE);
	if (bpf_probe_read_user_str(exception->name, sizeof(exception->name), (void *)exception->names[0]) < 0)
		exception->name[0] = 0;
	for (u32 at = 0; at < 4; at++) {
		type = word_at(type ? type + BASE_OF_TYPE : 0);
		exception->names[at + 1] = word_at(type ? type + NAME_OF_TYPE : 0);
		if (!exception->names[at + 1] ||
		    bpf_probe_read_user_str(exception->bases[at], sizeof(exception->bases[at]),
					    (void *)exception->names[at + 1]) < 0)
			exception->bases[at][0] = 0;
	}
}

/* An object that is thrown, and its std::type_info. */
static __always_inline void read_exception(struct cxx_exception *exception, u64 object, u64 type)
{
	read_types(exception, type);
	exception->has_text = bpf_probe_read_user_str(exception->text, sizeof(exception->text),
						      (void *)word_at(object + TEXT_OF_EXCEPTION)) > 0;
}

#endif
