/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers of a cgroup's files (condor_joblens/sample/files_build.py), each given the same file of any content.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "cgroup_readers.h" /* generated: the source in files_build.py */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int file = -1;
	int64_t a[2], b[2], c[2];

	if (file < 0)
		file = memfd_create("cgroup", MFD_CLOEXEC);
	if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
		abort();
	const int files[2] = {file, -1};

	read_cpu_stats(files, 2, a, b, c);
	read_pressures(files, 2, a);
	read_oom_kills(files, 2, a);
	read_memory_stats(files, 2, a, b, c);
	read_numbers(files, 2, a);
	if (a[1] != -1)
		abort();
	return 0;
}
