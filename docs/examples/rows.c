/* Prints the CPU time of each job that runs here, without Python:
 *	cc -o rows rows.c -I$(python3 -c 'import condor_joblens.shm as shm; print(shm.__path__[0])') && ./rows
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "joblens_shm.h"

static const struct joblens_column *column(const struct joblens_header *header, const char *name, char type)
{
	const struct joblens_column *found = joblens_column(header, name);

	if (!found || found->type != type) {
		fprintf(stderr, "rows: this version has no column %s of that type\n", name);
		exit(1);
	}
	return found;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/run/joblens/rows", *wrong;
	const struct joblens_header *header;
	const struct joblens_column *job, *slot, *seconds;
	struct stat status;
	uint64_t published;
	double time, used;
	int64_t count;
	char *rows, *row;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	/* a file that others may write could be shortened under our feet */
	if (file < 0 || fstat(file, &status) || (status.st_uid && status.st_uid != geteuid())) {
		fprintf(stderr, "rows: %s is not there, not root's, or may not be read\n", path);
		return 1;
	}
	header = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, file, 0);
	wrong = header == MAP_FAILED ? "can't be mapped" : joblens_check(header, status.st_size, JOBLENS_ROWS);
	if (wrong) {
		fprintf(stderr, "rows: %s %s\n", path, wrong);
		return 1;
	}
	job = column(header, "job_id", 'S');
	slot = column(header, "slot", 'S');
	seconds = column(header, "cpu_seconds", 'f');
	rows = malloc(header->capacity * header->record_bytes);
	count = rows ? joblens_read_rows(header, rows, &published, &time) : -1;
	for (row = rows; count > 0; count--, row += header->record_bytes) {
		memcpy(&used, row + seconds->offset, sizeof(used));
		/* texts are padded with NUL, and need not end with one; what is absent is NaN */
		printf("%.*s %.*s %.3f\n", (int)slot->bytes, row + slot->offset, (int)job->bytes, row + job->offset, used);
	}
	return count < 0;
}
