/* A FUSE file system with two files, `data` and `other`, of 1 MiB, one, `slow`, whose every read takes 200 ms, and one,
 * `stuck`, that does not open until its caller is killed.
 *   fuse_fs MOUNTPOINT -f -o subtype=cvmfs2
 * FUSE_FS_COUNTS, a file of 32 bytes: what it was asked and has answered, kept there as it happens. FUSE_FS_WRITES_LATE:
 * the kernel keeps what is written, and writes it when it likes. FUSE_FS_BACKGROUND: at most so many requests that
 * nobody waits for go to this daemon at a time.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };
static char data[SIZE];

/* What has an answer: forgetting and interrupting have none. */
static struct counts { uint64_t requests, request_bytes, answer_bytes, errors; } nobody_looks, *counts = &nobody_looks;

static ssize_t take_request(int device, void *to, size_t room, void *unused)
{
	ssize_t size = read(device, to, room);
	const struct fuse_in_header *head = to;

	(void)unused;
	if (size >= (ssize_t)sizeof(*head) && head->opcode != FUSE_FORGET && head->opcode != FUSE_BATCH_FORGET &&
	    head->opcode != FUSE_INTERRUPT) {
		__atomic_add_fetch(&counts->requests, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&counts->request_bytes, size, __ATOMIC_RELAXED);
	}
	return size;
}

static ssize_t answer(int device, struct iovec *parts, int count, void *unused)
{
	const struct fuse_out_header *head = parts[0].iov_base;

	(void)unused;
	if (head->unique) {	/* else it is no answer */
		__atomic_add_fetch(&counts->answer_bytes, head->len, __ATOMIC_RELAXED);
		__atomic_add_fetch(&counts->errors, head->error < 0, __ATOMIC_RELAXED);
	}
	return writev(device, parts, count);
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config)
{
	const char *background = getenv("FUSE_FS_BACKGROUND");

	(void)config;
	connection->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	if (getenv("FUSE_FS_WRITES_LATE"))
		connection->want |= FUSE_CAP_WRITEBACK_CACHE;
	if (background)
		connection->max_background = atoi(background);
	return NULL;
}

static int is(const char *path, const char *name) { return !strcmp(path + 1, name); }

static int get(const char *path, struct stat *status, struct fuse_file_info *file)
{
	(void)file;
	memset(status, 0, sizeof(*status));
	if (!strcmp(path, "/")) {
		status->st_mode = S_IFDIR | 0755;
		return 0;
	}
	if (!is(path, "data") && !is(path, "other") && !is(path, "slow") && !is(path, "stuck"))
		return -ENOENT;
	status->st_mode = S_IFREG | 0755;
	status->st_nlink = 1;
	status->st_size = SIZE;
	return 0;
}

static int open_it(const char *path, struct fuse_file_info *file)
{
	struct timespec moment = { 0, 10000000 };

	file->direct_io = is(path, "slow");
	while (is(path, "stuck")) {
		if (fuse_interrupted())
			return -EINTR;
		nanosleep(&moment, NULL);
	}
	return 0;
}

static int read_it(const char *path, char *to, size_t size, off_t offset, struct fuse_file_info *file)
{
	struct timespec pause = { 0, 200000000 };

	(void)file;
	if (is(path, "slow"))
		nanosleep(&pause, NULL);
	if (offset >= SIZE)
		return 0;
	if (size > (size_t)(SIZE - offset))
		size = SIZE - offset;
	memcpy(to, data + offset, size);
	return size;
}

static int write_it(const char *path, const char *from, size_t size, off_t offset, struct fuse_file_info *file)
{
	(void)path, (void)file;
	if (offset + size > SIZE)
		return -ENOSPC;
	memcpy(data + offset, from, size);
	return size;
}

static int truncate_it(const char *path, off_t size, struct fuse_file_info *file)
{
	(void)path, (void)size, (void)file;
	return 0;
}

int main(int count, char **arguments)
{
	static const struct fuse_operations operations = {
		.init = begin, .getattr = get, .open = open_it, .read = read_it, .write = write_it, .truncate = truncate_it,
	};
	static const struct fuse_custom_io io = { .read = take_request, .writev = answer };
	struct fuse_args options = FUSE_ARGS_INIT(count, arguments);
	struct fuse_cmdline_opts said;
	const char *file = getenv("FUSE_FS_COUNTS");
	struct fuse *fuse;
	struct fuse_session *session;

	if (file) {
		counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, open(file, O_RDWR), 0);
		if (counts == MAP_FAILED)
			return 1;
	}
	if (fuse_parse_cmdline(&options, &said))
		return 1;
	fuse = fuse_new(&options, &operations, sizeof(operations), NULL);
	if (!fuse || fuse_mount(fuse, said.mountpoint))
		return 1;
	session = fuse_get_session(fuse);
	if (fuse_session_custom_io(session, &io, fuse_session_fd(session)))
		return 1;
	return fuse_loop_mt(fuse, 1) != 0;
}
