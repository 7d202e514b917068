/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of unwind tables (condor_joblens/profiling/eh_frame.h): of any section, it writes as many rows as it says
 * and no more than there is room for.
 */
#include <stdlib.h>

#include "eh_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct code code[] = {{0x1000, 0x1000, 0x100000}, {~(uint64_t)0 - 0xffff, 0, 0xffff}};
	size_t count = unwind_rows(data, size, 0, code, 2, NULL, 0), room = count < 4096 ? count : 4096;
	uint64_t *rows = malloc(room * sizeof(*rows) + 1);

	if (!rows || unwind_rows(data, size, 0, code, 2, rows, room) != count)
		abort();
	for (size_t row = 0; row < room; row++)
		if ((rows[row] >> RULE_SHIFT & 7) > RULE_END)
			abort();
	free(rows);
	return 0;
}
