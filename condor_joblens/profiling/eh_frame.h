/* SPDX-License-Identifier: Apache-2.0
 *
 * Unwind tables of x86-64: what a program's .eh_frame says, as rows of eight bytes in the order of their code. The file
 * is the job's: every read is bounded, and so is all the work. What can't be said in a row is in none.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum rule {
	RULE_NONE,	/* nothing is known from here on */
	RULE_STACK,	/* the caller's frame ends at the stack pointer + n */
	RULE_FRAME,	/* at the frame pointer + n */
	RULE_PLT,	/* at the stack pointer + 8, or + 16 from byte n of each 16 bytes of code on */
	RULE_REALIGNED,	/* at what is saved at the frame pointer - n; the caller's frame pointer is at the frame pointer */
	RULE_SIGNAL,	/* the kernel has saved all registers on the stack */
	RULE_END,	/* nobody has called this function */
};

/* A row: offset in the file << 32 | rule << 29 | n / 8 << 12 | how far below the end of the caller's frame the caller's
 * frame pointer is saved / 8; 0 if it still is in its register. */
enum { CFA_BITS = 17, FRAME_BITS = 12, RULE_SHIFT = 29, REMEMBERED = 8, MOST_WORK = 1 << 26 };
enum { RBP = 6, RSP = 7, RETURN = 16 };

struct code { uint64_t address, offset, size; };	/* what of the file is mapped to be run */

struct reader { const uint8_t *at, *end; int failed; };

static uint64_t read_number(struct reader *reader, size_t bytes)
{
	uint64_t value = 0;

	if ((size_t)(reader->end - reader->at) < bytes) {
		reader->failed = 1;
		reader->at = reader->end;
		return 0;
	}
	memcpy(&value, reader->at, bytes);
	reader->at += bytes;
	return value;
}

static uint64_t read_leb(struct reader *reader, int is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = (uint8_t)read_number(reader, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && !reader->failed);
	if (is_signed && shift < 64 && byte & 0x40)
		value |= ~(uint64_t)0 << shift;
	return value;
}

/* A number of bytes in units of `align`: both are the file's, so the product may be anything. */
static int64_t read_scaled(struct reader *reader, int is_signed, int64_t align)
{
	return (int64_t)(read_leb(reader, is_signed) * (uint64_t)align);
}

static void skip(struct reader *reader, uint64_t bytes)
{
	if ((uint64_t)(reader->end - reader->at) < bytes) {
		reader->failed = 1;
		reader->at = reader->end;
	} else {
		reader->at += bytes;
	}
}

/* A pointer as `encoding` (DW_EH_PE_*) has it; `address` is that of the pointer itself. */
static uint64_t read_pointer(struct reader *reader, uint8_t encoding, uint64_t address)
{
	uint64_t value;

	switch (encoding & 0x0f) {
	case 0x0: case 0x4: case 0xc: value = read_number(reader, 8); break;
	case 0x1: value = read_leb(reader, 0); break;
	case 0x2: value = read_number(reader, 2); break;
	case 0x3: value = read_number(reader, 4); break;
	case 0x9: value = read_leb(reader, 1); break;
	case 0xa: value = (uint64_t)(int64_t)(int16_t)read_number(reader, 2); break;
	case 0xb: value = (uint64_t)(int64_t)(int32_t)read_number(reader, 4); break;
	default: reader->failed = 1; return 0;
	}
	if ((encoding & 0x70) == 0x10)
		value += address;
	else if (encoding & 0x70)
		reader->failed = 1;
	return value;
}

/* What is known of the caller at one place of a function. */
struct state {
	enum rule rule;
	int64_t n;	/* bytes */
	int64_t frame;	/* where its frame pointer is saved, below the end of its frame; 0: not saved */
	int has_return;	/* its return address is just below that end */
	int is_outermost;
	int lost_frame;	/* its frame pointer is nowhere that a row can say */
};

struct common {	/* a CIE */
	const uint8_t *start;
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding;
	int is_signal, has_augmentation, is_good;
	struct reader instructions;
};

struct table {
	const uint8_t *section;
	size_t size;
	uint64_t address;
	uint64_t *rows;
	size_t count, room;
	uint64_t work;
};

static void add_row(struct table *table, uint64_t offset, const struct state *state)
{
	uint64_t row = offset << 32;

	if (offset >> 32)
		return;
	if (state && state->is_outermost) {
		row |= (uint64_t)RULE_END << RULE_SHIFT;
	} else if (state && state->rule == RULE_SIGNAL) {
		row |= (uint64_t)RULE_SIGNAL << RULE_SHIFT;
	} else if (state && state->has_return && !state->lost_frame) {
		int64_t scale = state->rule == RULE_PLT ? 1 : 8;

		if (state->n >= 0 && state->n % scale == 0 && state->n / scale < 1 << CFA_BITS && state->frame >= 0 &&
		    state->frame % 8 == 0 && state->frame / 8 < 1 << FRAME_BITS)
			row |= (uint64_t)state->rule << RULE_SHIFT | (uint64_t)(state->n / scale) << FRAME_BITS |
			       (uint64_t)(state->frame / 8);
	}
	if (table->count < table->room)
		table->rows[table->count] = row;
	table->count++;
}

static void define_frame(struct state *state, uint64_t reg, int64_t n)
{
	state->rule = reg == RSP ? RULE_STACK : reg == RBP ? RULE_FRAME : RULE_NONE;
	state->n = n;
}

/* The two kinds of expressions that compilers and linkers make for the end of the caller's frame. */
static void define_expression(struct state *state, const uint8_t *code, uint64_t bytes)
{
	/* breg7 8, breg16 0, lit15, and, litN, ge, lit3, shl, plus */
	static const uint8_t plt[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0, 0x2a, 0x33, 0x24, 0x22 };

	state->rule = RULE_NONE;
	if (bytes == sizeof(plt) && !memcmp(code, plt, 6) && !memcmp(code + 7, plt + 7, 4) && code[6] >= 0x30 &&
	    code[6] <= 0x3f) {
		state->rule = RULE_PLT;
		state->n = code[6] - 0x30;
	} else if (bytes == 3 && code[0] == 0x76 && code[1] & 0x40 && !(code[1] & 0x80) && code[2] == 0x06) {
		/* breg6 -n, deref */
		state->rule = RULE_REALIGNED;
		state->n = 0x80 - code[1];
	}
}

static void save_register(struct state *state, uint64_t reg, int64_t at)
{
	if (reg == RBP) {
		state->lost_frame = at >= 0 || at < -(1 << 20);
		state->frame = state->lost_frame ? 0 : -at;
	} else if (reg == RETURN) {
		state->has_return = at == -8;
		state->is_outermost = 0;
	}
}

static void lose_register(struct state *state, uint64_t reg)
{
	if (reg == RBP)
		state->lost_frame = 1;
	else if (reg == RETURN)
		state->has_return = 0;
}

static void restore_register(struct state *state, const struct state *first, uint64_t reg)
{
	if (reg == RBP) {
		state->frame = first->frame;
		state->lost_frame = first->lost_frame;
	} else if (reg == RETURN) {
		state->has_return = first->has_return;
		state->is_outermost = first->is_outermost;
	}
}

static void save_by_expression(struct state *state, struct reader *reader)
{
	uint64_t reg = read_leb(reader, 0), bytes = read_leb(reader, 0);
	const uint8_t *code = reader->at;

	skip(reader, bytes);
	if (reader->failed)
		return;
	if (reg == RBP && bytes == 2 && code[0] == 0x76 && code[1] == 0) {	/* breg6 0: in a realigned stack */
		state->frame = 8;
		state->lost_frame = 0;
	} else {
		lose_register(state, reg);
	}
}

/* Instructions whose operands change the state; 0 for one that is not known. */
static int change_state(struct state *state, const struct state *first, uint8_t code, struct reader *reader,
			int64_t data_align)
{
	uint64_t reg, bytes;
	const uint8_t *expression;

	switch (code) {
	case 0x00: return 1;	/* nop */
	case 0x05: reg = read_leb(reader, 0); save_register(state, reg, read_scaled(reader, 0, data_align)); return 1;
	case 0x06: restore_register(state, first, read_leb(reader, 0)); return 1;
	case 0x07:	/* undefined */
		reg = read_leb(reader, 0);
		lose_register(state, reg);
		if (reg == RETURN)
			state->is_outermost = 1;
		return 1;
	case 0x08:	/* the same value */
		reg = read_leb(reader, 0);
		if (reg == RBP)
			state->frame = state->lost_frame = 0;
		return 1;
	case 0x09: reg = read_leb(reader, 0); read_leb(reader, 0); lose_register(state, reg); return 1;
	case 0x0c: reg = read_leb(reader, 0); define_frame(state, reg, (int64_t)read_leb(reader, 0)); return 1;
	case 0x0d: define_frame(state, read_leb(reader, 0), state->n); return 1;
	case 0x0e: state->n = (int64_t)read_leb(reader, 0); return 1;
	case 0x0f:
		bytes = read_leb(reader, 0);
		expression = reader->at;
		skip(reader, bytes);
		if (!reader->failed)
			define_expression(state, expression, bytes);
		return 1;
	case 0x10: save_by_expression(state, reader); return 1;
	case 0x11: reg = read_leb(reader, 0); save_register(state, reg, read_scaled(reader, 1, data_align)); return 1;
	case 0x12: reg = read_leb(reader, 0); define_frame(state, reg, read_scaled(reader, 1, data_align)); return 1;
	case 0x13: state->n = read_scaled(reader, 1, data_align); return 1;
	case 0x14: case 0x15: reg = read_leb(reader, 0); read_leb(reader, 0); lose_register(state, reg); return 1;
	case 0x16: reg = read_leb(reader, 0); skip(reader, read_leb(reader, 0)); lose_register(state, reg); return 1;
	case 0x2e: read_leb(reader, 0); return 1;	/* GNU_args_size */
	}
	return 0;
}

/* Runs the instructions from `start` on, whose place in the file is `offset`; a row for each place at which they change
 * something. Without `table` nothing is written: they are a CIE's. 0 if something in them is not known. */
static int run(struct table *table, uint64_t *work, const struct common *common, struct reader reader,
	       struct state *state, uint64_t offset)
{
	struct state first = *state, remembered[REMEMBERED];
	unsigned depth = 0;

	while (reader.at < reader.end && !reader.failed) {
		uint8_t code = (uint8_t)read_number(&reader, 1), low = code & 0x3f;
		uint64_t step = 0;

		if (++*work > MOST_WORK)
			return 0;
		switch (code >> 6) {
		case 1: step = low; break;
		case 2: save_register(state, low, read_scaled(&reader, 0, common->data_align)); continue;
		case 3: restore_register(state, &first, low); continue;
		default:
			if (code == 0x02 || code == 0x03 || code == 0x04) {
				step = read_number(&reader, (size_t)1 << (code - 2));
			} else if (code == 0x0a) {
				if (depth == REMEMBERED)
					return 0;
				remembered[depth++] = *state;
				continue;
			} else if (code == 0x0b) {
				if (depth == 0)
					return 0;
				*state = remembered[--depth];
				continue;
			} else if (change_state(state, &first, code, &reader, common->data_align)) {
				continue;
			} else {
				return 0;
			}
		}
		if (!table || reader.failed)
			return 0;
		if (step)
			add_row(table, offset, state);
		offset += step * common->code_align;
	}
	if (table && !reader.failed)
		add_row(table, offset, state);
	return !reader.failed;
}

static int read_common(const struct table *table, const uint8_t *at, struct common *common)
{
	struct reader reader = { at, table->section + table->size, 0 };
	uint64_t length = read_number(&reader, 4);
	const char *letters;
	uint8_t version;

	memset(common, 0, sizeof(*common));
	common->start = at;
	if (reader.failed || length == 0xffffffff || length > (uint64_t)(reader.end - reader.at))
		return 0;
	reader.end = reader.at + length;
	if (read_number(&reader, 4) != 0)
		return 0;
	version = (uint8_t)read_number(&reader, 1);
	letters = (const char *)reader.at;
	if (reader.failed || (version != 1 && version != 3) || !memchr(letters, 0, (size_t)(reader.end - reader.at)))
		return 0;
	skip(&reader, strlen(letters) + 1);
	common->code_align = read_leb(&reader, 0);
	common->data_align = (int64_t)read_leb(&reader, 1);
	if ((version == 1 ? read_number(&reader, 1) : read_leb(&reader, 0)) != RETURN)
		return 0;
	if (common->data_align < -64 || common->data_align > 64 || common->code_align > 64)
		return 0;
	if (*letters == 'z') {
		struct reader data = reader;

		common->has_augmentation = 1;
		data.end = reader.end;
		skip(&reader, read_leb(&reader, 0));
		read_leb(&data, 0);
		for (letters++; *letters && !data.failed; letters++) {
			if (*letters == 'R')
				common->encoding = (uint8_t)read_number(&data, 1);
			else if (*letters == 'L')
				read_number(&data, 1);
			else if (*letters == 'P')
				read_pointer(&data, (uint8_t)read_number(&data, 1) & 0x0f, 0);
			else if (*letters == 'S')
				common->is_signal = 1;
			else
				return 0;
		}
		if (data.failed)
			return 0;
	} else if (*letters) {
		return 0;
	}
	common->instructions = reader;
	common->is_good = !reader.failed;
	return common->is_good;
}

static void read_function(struct table *table, const struct common *common, struct reader reader, const struct code *code,
			  size_t codes)
{
	uint64_t address = table->address + (uint64_t)(reader.at - table->section);
	uint64_t start = read_pointer(&reader, common->encoding, address), size, offset;
	struct state state = { RULE_NONE, 0, 0, 0, 0, 0 };
	size_t rows = table->count, at;

	size = read_pointer(&reader, common->encoding & 0x0f, 0);
	if (common->has_augmentation)
		skip(&reader, read_leb(&reader, 0));
	for (at = 0; at < codes; at++)
		if (start >= code[at].address && start - code[at].address < code[at].size)
			break;
	if (reader.failed || at == codes || !size || size > code[at].size - (start - code[at].address))
		return;
	offset = start - code[at].address + code[at].offset;
	if (common->is_signal) {
		state.rule = RULE_SIGNAL;
		add_row(table, offset, &state);
	} else if (!run(NULL, &table->work, common, common->instructions, &state, 0) ||
		   !run(table, &table->work, common, reader, &state, offset)) {
		table->count = rows;
		add_row(table, offset, NULL);
	}
	add_row(table, offset + size, NULL);
}

/* Writes the rows of a section .eh_frame that is mapped at `address`, in no order; how many there are, which may be more
 * than there is `room` for. */
static size_t unwind_rows(const uint8_t *section, size_t size, uint64_t address, const struct code *code, size_t codes,
			  uint64_t *rows, size_t room)
{
	struct table table = { section, size, address, rows, 0, room, 0 };
	struct reader reader = { section, section + size, 0 };
	struct common common = { 0 };

	while (reader.at < reader.end && table.work < MOST_WORK) {
		struct reader entry;
		uint64_t length = read_number(&reader, 4), back;
		const uint8_t *here = reader.at;

		if (reader.failed || length == 0 || length == 0xffffffff || length > (uint64_t)(reader.end - reader.at))
			break;
		entry = reader;
		entry.end = entry.at + length;
		reader.at += length;
		table.work++;
		back = read_number(&entry, 4);
		if (entry.failed || back == 0 || back > (uint64_t)(here - section))
			continue;
		if (common.start != here - back) {
			read_common(&table, here - back, &common);
			table.work += 8;
		}
		if (common.is_good)
			read_function(&table, &common, entry, code, codes);
	}
	return table.count;
}
