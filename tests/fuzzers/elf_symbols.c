/* SPDX-License-Identifier: Apache-2.0
 *
 * What sorts the tables of a program's file (condor_joblens/profiling/elf_symbols.h): of any table the functions are in
 * order, what is found of them is what is asked for, and nothing beyond a table is read or written.
 */
#include <stdlib.h>

#include "elf_symbols.h"

static void check_functions(const uint8_t *table, size_t count, uint64_t address)
{
	static const uint64_t section_ends[] = {0, 0x2000, ~(uint64_t)0};
	size_t number = find_symbols(table, count, 1 << STT_FUNC | 1 << STT_OBJECT, 4, NULL), at;
	struct symbol *found = malloc(number * sizeof(*found) + 1), *spare = malloc(number * sizeof(*found) + 1);
	ptrdiff_t place;

	if (!found || !spare || find_symbols(table, count, 1 << STT_FUNC | 1 << STT_OBJECT, 4, found) != number)
		abort();
	finish_functions(found, spare, number, section_ends, count % 4);
	for (at = 1; at < number; at++)
		if (found[at - 1].start > found[at].start)
			abort();
	place = function_at(found, number, address);
	if (place >= 0 && (found[place].start > address || found[place].end <= address))
		abort();
	free(found);
	free(spare);
}

static void check_entries(const uint8_t *pairs, size_t count, uint64_t address)
{
	uint64_t *entries = malloc(8 * count + 1), *spare = malloc(8 * count + 1);
	size_t number, at;

	if (!entries || !spare)
		abort();
	number = read_entries(pairs, count, address, entries, spare);
	for (at = 1; at < number; at++)
		if (entries[at - 1] > entries[at])
			abort();
	if (number > 1 && widest_gap(entries, number) + 1 >= number)
		abort();
	free(entries);
	free(spare);
}

static void check_rows(const uint8_t *data, size_t count)
{
	uint64_t *rows = malloc(8 * count + 1), *same = malloc(8 * count + 1), *spare = malloc(8 * count + 1);

	if (!rows || !same || !spare)
		abort();
	memcpy(rows, data, 8 * count);
	memcpy(same, data, 8 * count);
	sort_rows(rows, spare, count);
	sort_numbers(same, spare, count);
	if (memcmp(rows, same, 8 * count))
		abort();
	for (size_t at = 1; at < count; at++)
		if (rows[at - 1] > rows[at])
			abort();
	free(rows);
	free(same);
	free(spare);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint32_t names[] = {0, 1, 7, 0x01010101};
	uint64_t address = 0;
	size_t count;

	if (size < 8)
		return 0;
	memcpy(&address, data, 8);
	data += 8;
	size -= 8;
	count = size / sizeof(Elf64_Sym);
	check_functions(data, count, address);
	check_entries(data, size / 8, address);
	check_rows(data, size / 8);
	if (first_called(data, count, names, 4) > count)
		abort();
	return 0;
}
