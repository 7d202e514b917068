/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* An array that user space maps into its memory. How many elements it has is said when it is loaded. */
#ifndef JOBLENS_MAPPED_ARRAY_BPF_H
#define JOBLENS_MAPPED_ARRAY_BPF_H

#define MAPPED_ARRAY(name, type_of_value)			\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__uint(max_entries, 1);				\
		__type(key, u32);				\
		__type(value, type_of_value);			\
	} name SEC(".maps")

#endif
