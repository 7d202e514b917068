/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What is read of an exception of C++: plain declarations, as in lib/joblens.h.
 */
#ifndef JOBLENS_EXCEPTIONS_H
#define JOBLENS_EXCEPTIONS_H

/* Texts are empty if they were not in memory. */
struct cxx_exception {
	__u64 names[5];	/* addresses of the mangled names of the type and of the types that it is made of; 0: no more */
	char name[128];	/* the first of these */
	char bases[4][32];	/* and the others */
	char text[256];	/* where an exception of the C++ library has its own */
	__u32 has_text;
	__u32 unused;
};

#endif
