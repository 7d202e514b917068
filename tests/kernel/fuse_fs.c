/* A FUSE file system with one file, `data`, of 1 MiB, and one, `slow`, whose every read takes 200 ms.
 *   fuse_fs MOUNTPOINT -f -o subtype=cvmfs2
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <string.h>
#include <time.h>

enum { SIZE = 1 << 20 };
static char data[SIZE];

static int is(const char *path, const char *name) { return !strcmp(path + 1, name); }

static int get(const char *path, struct stat *status, struct fuse_file_info *file)
{
	(void)file;
	memset(status, 0, sizeof(*status));
	if (!strcmp(path, "/")) {
		status->st_mode = S_IFDIR | 0755;
		return 0;
	}
	if (!is(path, "data") && !is(path, "slow"))
		return -ENOENT;
	status->st_mode = S_IFREG | 0644;
	status->st_nlink = 1;
	status->st_size = SIZE;
	return 0;
}

static int open_it(const char *path, struct fuse_file_info *file)
{
	file->direct_io = is(path, "slow");
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
		.getattr = get, .open = open_it, .read = read_it, .write = write_it, .truncate = truncate_it,
	};

	return fuse_main(count, arguments, &operations, NULL);
}
