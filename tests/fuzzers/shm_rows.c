/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of rows (joblens_shm.h), given a file of any content: what it takes for a whole file it reads within it.
 */
#include <stdlib.h>

#include "joblens_shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct joblens_header *file = malloc(size + !size);
	uint64_t published;
	double time;

	if (size)
		memcpy(file, data, size);
	if (!joblens_check(file, size, JOBLENS_ROWS)) {
		char *rows = malloc(file->capacity * file->record_bytes);
		int64_t count = joblens_read_rows(file, rows, &published, &time);

		if (count > (int64_t)file->capacity)
			abort();
		joblens_column(file, "cpu_user_seconds");
		free(rows);
	}
	free(file);
	return 0;
}
