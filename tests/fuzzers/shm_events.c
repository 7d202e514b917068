/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of events (joblens_shm.h), given a file of any content. The first word of an input is where the reader
 * was before.
 */
#include <stdlib.h>

#include "joblens_shm.h"

enum { ROOM = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t last, missed = 0, bytes = size - sizeof(last);
	struct joblens_header *file;

	if (size <= sizeof(last))
		return 0;
	memcpy(&last, data, sizeof(last));
	file = malloc(bytes);
	memcpy(file, data + sizeof(last), bytes);
	if (!joblens_check(file, bytes, JOBLENS_EVENTS)) {
		char *events = malloc(ROOM * file->record_bytes);

		for (int again = 0; again < 3; again++)
			if (joblens_read_events(file, &last, events, ROOM, &missed) > ROOM)
				abort();
		free(events);
	}
	free(file);
	return 0;
}
