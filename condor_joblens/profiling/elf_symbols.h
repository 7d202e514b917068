/* SPDX-License-Identifier: Apache-2.0
 *
 * What tables of a program's file say in the order of their addresses: its symbols, and where its functions begin. The
 * file is the job's: a table is any bytes, of a size that the caller has bounded.
 */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct symbol {
	uint64_t start, end;	/* `end` is above all of it; until finish_functions, only of those that have a size */
	uint32_t name;	/* offset in its section of names */
	uint16_t strings;	/* number of that section */
	uint16_t section;	/* of the symbol itself */
};

/* Sorts by `key`, a number of so many bytes; equal ones stay in their order. A byte that all have alike costs little. */
#define DEFINE_SORT(name, type, key, bytes)								\
static void name(type *all, type *spare, size_t count)							\
{													\
	size_t places[bytes][256], at, sum, some;							\
	type *from = all, *to = spare, *other;								\
	int byte, digit;										\
													\
	for (at = 1; at < count && key(all[at - 1]) <= key(all[at]); at++)				\
		;											\
	if (at >= count)										\
		return;											\
	memset(places, 0, sizeof(places));								\
	for (at = 0; at < count; at++)									\
		for (byte = 0; byte < bytes; byte++)							\
			places[byte][key(all[at]) >> 8 * byte & 255]++;					\
	for (byte = 0; byte < bytes; byte++) {								\
		if (places[byte][key(all[0]) >> 8 * byte & 255] == count)				\
			continue;									\
		for (digit = 0, sum = 0; digit < 256; digit++) {					\
			some = places[byte][digit];							\
			places[byte][digit] = sum;							\
			sum += some;									\
		}											\
		for (at = 0; at < count; at++)								\
			to[places[byte][key(from[at]) >> 8 * byte & 255]++] = from[at];			\
		other = from;										\
		from = to;										\
		to = other;										\
	}												\
	if (from != all)										\
		memcpy(all, from, count * sizeof(*all));						\
}

#define ITSELF(number) (number)
#define UPPER_HALF(number) ((number) >> 32)
#define START_OF(symbol) ((symbol).start)

/* `spare` has room for as many. */
DEFINE_SORT(sort_numbers, uint64_t, ITSELF, 8)
DEFINE_SORT(sort_by_upper_half, uint64_t, UPPER_HALF, 4)
DEFINE_SORT(sort_symbols, struct symbol, START_OF, 8)

enum { FEW_ALIKE = 16 };

/* The same order as that of sort_numbers, sooner: the upper halves of hardly any are alike. */
static void sort_rows(uint64_t *rows, uint64_t *spare, size_t count)
{
	size_t at, to, alike = 1;

	sort_by_upper_half(rows, spare, count);
	for (at = 1; at < count; at++) {
		uint64_t row = rows[at];

		alike = UPPER_HALF(row) == UPPER_HALF(rows[at - 1]) ? alike + 1 : 1;
		if (alike > FEW_ALIKE) {
			sort_numbers(rows, spare, count);
			return;
		}
		for (to = at; to > 0 && rows[to - 1] > row; to--)
			rows[to] = rows[to - 1];
		rows[to] = row;
	}
}

static Elf64_Sym symbol_at(const uint8_t *table, size_t at)
{
	Elf64_Sym symbol;

	memcpy(&symbol, table + at * sizeof(symbol), sizeof(symbol));
	return symbol;
}

/* Of a table of `count` symbols those that the file itself has, of some kinds (bits by STT_*); how many there are. Without
 * `found` they are only counted. */
static size_t find_symbols(const uint8_t *table, size_t count, uint32_t kinds, uint16_t strings, struct symbol *found)
{
	size_t at, number = 0;

	for (at = 0; at < count; at++) {
		Elf64_Sym symbol = symbol_at(table, at);

		if (!symbol.st_shndx || !(kinds >> ELF64_ST_TYPE(symbol.st_info) & 1))
			continue;
		if (found) {
			found[number].start = symbol.st_value;
			found[number].end = symbol.st_size ? symbol.st_value + symbol.st_size : 0;
			found[number].name = symbol.st_name;
			found[number].strings = strings;
			found[number].section = symbol.st_shndx;
		}
		number++;
	}
	return number;
}

/* Sorts functions by where they begin. Written in assembler, some have no size: they last until the next one, or the end
 * of their section. */
static void finish_functions(struct symbol *all, struct symbol *spare, size_t count, const uint64_t *section_ends,
			     size_t sections)
{
	size_t at;

	sort_symbols(all, spare, count);
	for (at = 0; at < count; at++) {
		uint64_t next = at + 1 < count ? all[at + 1].start : all[at].start + 1;
		size_t section = all[at].section < sections ? all[at].section : sections - 1;

		if (all[at].end)
			continue;
		all[at].end = sections && section_ends[section] < next ? section_ends[section] : next;
	}
}

/* The number of the last function that begins at an address or before it; -1: none does. */
static ptrdiff_t last_function(const struct symbol *all, size_t count, uint64_t address)
{
	size_t below = 0, above = count;

	while (below < above) {
		size_t middle = below + (above - below) / 2;

		if (all[middle].start <= address)
			below = middle + 1;
		else
			above = middle;
	}
	return (ptrdiff_t)below - 1;
}

/* The number of the function at an address; -1: there is none. One that has ended may lie within another. */
static ptrdiff_t function_at(const struct symbol *all, size_t count, uint64_t address)
{
	ptrdiff_t last = last_function(all, count, address), at;

	for (at = last; at >= 0 && at > last - 8; at--)
		if (address < all[at].end)
			return at;
	return -1;
}

/* The first symbol that the file itself has and that is called by one of these rising offsets of names; `count`: none. */
static size_t first_called(const uint8_t *table, size_t count, const uint32_t *names, size_t name_count)
{
	size_t at;

	for (at = 0; at < count && name_count; at++) {
		Elf64_Sym symbol = symbol_at(table, at);
		size_t below = 0, above = symbol.st_shndx ? name_count : 0;

		while (below < above) {
			size_t middle = below + (above - below) / 2;

			if (names[middle] < symbol.st_name)
				below = middle + 1;
			else
				above = middle;
		}
		if (symbol.st_shndx && below < name_count && names[below] == symbol.st_name)
			return at;
	}
	return count;
}

/* Where functions begin, rising, by `count` pairs of distances from `address`: the index that a linker makes of .eh_frame.
 * How many there are; `spare` has room for as many as `entries`. */
static size_t read_entries(const uint8_t *pairs, size_t count, uint64_t address, uint64_t *entries, uint64_t *spare)
{
	size_t at, number = 0;

	for (at = 0; at < count; at++) {
		int32_t distance;
		uint64_t entry;

		memcpy(&distance, pairs + 8 * at, sizeof(distance));
		entry = address + (uint64_t)(int64_t)distance;
		if ((int64_t)entry > 0)
			entries[number++] = entry;
	}
	sort_numbers(entries, spare, number);
	return number;
}

/* The number of the first of some rising numbers behind which the next one is farthest; there are two or more. */
static size_t widest_gap(const uint64_t *numbers, size_t count)
{
	size_t at, widest = 0;

	for (at = 1; at + 1 < count; at++)
		if (numbers[at + 1] - numbers[at] > numbers[widest + 1] - numbers[widest])
			widest = at;
	return widest;
}
