"""Builds `_merge`, which puts what sources have counted into rows: a job's end has no time for the steps of numpy."""

from cffi import FFI

DECLARATIONS = """
enum { MOST_PARTS = 4 };

enum merge_kind {
    MERGE_COUNTER,  /* a whole number: with its offset, and never less than before */
    MERGE_SECONDS,  /* the same of nanoseconds, as seconds */
    MERGE_GAUGE,    /* as it is */
    MERGE_GREATEST, /* never less than before */
    MERGE_MEAN,     /* seconds: microseconds in the first two parts, by the others' count; NaN where that is 0 */
};

/* A column of the row, and what it is made of. Places are in bytes. */
struct merged_column {
    uint32_t kind;
    uint32_t row;       /* its place in the row */
    uint32_t offset;    /* and in the run's offsets, if it is a counter */
    int32_t factor;     /* of a gauge: bytes a page, or 1 */
    uint32_t parts;
    uint32_t source[MOST_PARTS];
    uint32_t place[MOST_PARTS];
    int32_t sign[MOST_PARTS];
};

struct merge_table { char *first; int64_t stride; };
struct merge_source { const char *first; int64_t stride; }; /* NULL: it has nothing */

void merge_columns(struct merge_table rows, struct merge_table offsets, const int64_t *runs, size_t count,
    const struct merged_column *columns, size_t many, const struct merge_source *sources);
void gather_words(struct merge_table rows, const int64_t *runs, size_t count, const uint32_t *places, size_t many,
    uint64_t *words);
"""

SOURCE = (
    """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
"""
    + DECLARATIONS.replace("\nvoid ", "\nstatic void ")
    + """
static uint64_t part_of(const struct merged_column *column, const struct merge_source *sources, size_t i, size_t part)
{
    const struct merge_source *source = &sources[column->source[part]];
    uint64_t word;

    if (!source->first)
        return 0;
    memcpy(&word, source->first + (ptrdiff_t)i * source->stride + column->place[part], sizeof(word));
    return column->sign[part] < 0 ? -word : word;
}

/* Sums wrap as the kernel's do, so that a negative start comes out right. */
static uint64_t sum_of(const struct merged_column *column, const struct merge_source *sources, size_t i)
{
    uint64_t sum = 0;

    for (size_t part = 0; part < column->parts; part++)
        sum += part_of(column, sources, i, part);
    return sum;
}

static double mean_of(const struct merged_column *column, const struct merge_source *sources, size_t i)
{
    uint64_t sum = part_of(column, sources, i, 0) + part_of(column, sources, i, 1);
    uint64_t count = part_of(column, sources, i, 2) + part_of(column, sources, i, 3);

    return count ? (double)sum * 1e-6 / (double)count : NAN;
}

static void merge_column(char *to, const char *offset, const struct merged_column *column,
                         const struct merge_source *sources, size_t i)
{
    int64_t number, added = 0;
    double seconds, more = 0;

    switch (column->kind) {
    case MERGE_COUNTER:
        memcpy(&number, to, sizeof(number));
        memcpy(&added, offset, sizeof(added));
        added = (int64_t)((uint64_t)added + sum_of(column, sources, i));
        if (added > number)
            memcpy(to, &added, sizeof(added));
        break;
    case MERGE_SECONDS:
        memcpy(&seconds, to, sizeof(seconds));
        memcpy(&more, offset, sizeof(more));
        more += (double)(int64_t)sum_of(column, sources, i) * 1e-9;
        if (!(seconds >= more)) /* NaN is absent */
            memcpy(to, &more, sizeof(more));
        break;
    case MERGE_GAUGE:
        number = (int64_t)(sum_of(column, sources, i) * (uint64_t)(int64_t)column->factor);
        memcpy(to, &number, sizeof(number));
        break;
    case MERGE_GREATEST:
        memcpy(&number, to, sizeof(number));
        added = (int64_t)(sum_of(column, sources, i) * (uint64_t)(int64_t)column->factor);
        if (added > number)
            memcpy(to, &added, sizeof(added));
        break;
    case MERGE_MEAN:
        seconds = mean_of(column, sources, i);
        memcpy(to, &seconds, sizeof(seconds));
        break;
    }
}

static void merge_columns(struct merge_table rows, struct merge_table offsets, const int64_t *runs, size_t count,
    const struct merged_column *columns, size_t many, const struct merge_source *sources)
{
    for (size_t i = 0; i < count; i++)
        for (size_t place = 0; place < many; place++) {
            const struct merged_column *column = &columns[place];
            char *row = rows.first + (ptrdiff_t)runs[i] * rows.stride;

            merge_column(row + column->row, offsets.first + (ptrdiff_t)runs[i] * offsets.stride + column->offset,
                         column, sources, i);
        }
}

/* The words at these places of the rows, one row after the other. */
static void gather_words(struct merge_table rows, const int64_t *runs, size_t count, const uint32_t *places,
    size_t many, uint64_t *words)
{
    for (size_t i = 0; i < count; i++)
        for (size_t place = 0; place < many; place++)
            memcpy(words++, rows.first + (ptrdiff_t)runs[i] * rows.stride + places[place], sizeof(*words));
}
"""
)

ffi = FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "condor_joblens.sample._merge",
    SOURCE,
    extra_compile_args=["-O2", "-Wall"],
    libraries=["m"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
