/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of an artifact (joblens_shm.h): the content that a good header tells of is in the file.
 */
#include <stdlib.h>

#include "joblens_shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct joblens_artifact *file = malloc(size + !size);

	if (size)
		memcpy(file, data, size);
	if (!joblens_check_artifact(file, size) && file->content_at + file->length != size)
		abort();
	free(file);
	return 0;
}
