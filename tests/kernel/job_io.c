/* What a job does with files: the verbs of level io. Each knows how many calls it makes, and of what. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { perror(#what); exit(99); } } while (0)

static int open_new(const char *path) { return open(path, O_RDWR | O_CREAT | O_TRUNC, 0644); }

/* Opens PATH and TIMES writes BYTES at its beginning and reads them, by all four ways there are. */
static void rw(const char *path, long times, long bytes)
{
	char *buffer = calloc(1, bytes);
	struct iovec vector = { buffer, bytes };
	int fd = open_new(path);

	CHECK(fd >= 0);
	for (long i = 0; i < times; i++)
		switch (i & 3) {
		case 0:
			CHECK(pwrite(fd, buffer, bytes, 0) == bytes && pread(fd, buffer, bytes, 0) == bytes);
			break;
		case 1:
			CHECK(pwritev(fd, &vector, 1, 0) == bytes && preadv(fd, &vector, 1, 0) == bytes);
			break;
		case 2:
			CHECK(pwritev2(fd, &vector, 1, 0, 0) == bytes && preadv2(fd, &vector, 1, 0, 0) == bytes);
			break;
		case 3:
			CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, buffer, bytes) == bytes);
			CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, buffer, bytes) == bytes);
		}
	close(fd);
	free(buffer);
}

void verb_rw(char **given) { rw(given[0], atol(given[1]), atol(given[2])); }

/* Opens an existing PATH, reads BYTES from its beginning once. */
void verb_readonce(char **given)
{
	long bytes = atol(given[1]);
	char *buffer = malloc(bytes);
	int fd = open(given[0], O_RDONLY);

	CHECK(fd >= 0 && read(fd, buffer, bytes) == bytes);
	close(fd);
}

/* TIMES opens for each of six errors, in FOLDER. */
void verb_badopens(char **given)
{
	long times = atol(given[1]);

	CHECK(!chdir(given[0]));
	close(open_new("file"));
	CHECK(!symlink("file", "link") && !mkdir("closed", 0700) && !mkdir("folder", 0755));
	for (long i = 0; i < times; i++) {
		CHECK(open("nothing", O_RDONLY) < 0);		/* ENOENT */
		CHECK(open("file/below", O_RDONLY) < 0);	/* ENOTDIR */
		CHECK(open("folder", O_WRONLY) < 0);		/* EISDIR */
		CHECK(open("link", O_NOFOLLOW) < 0);		/* ELOOP */
		CHECK(open("file", O_CREAT | O_EXCL) < 0);	/* EEXIST */
	}
	setfsuid(65534);
	for (long i = 0; i < times; i++)
		CHECK(open("closed/file", O_RDONLY) < 0);	/* EACCES */
	setfsuid(0);
}

/* TIMES opens of a PATH that isn't there. */
void verb_absent(char **given)
{
	for (long i = atol(given[1]); i > 0; i--)
		CHECK(open(given[0], O_RDONLY) < 0);
}

/* TIMES copies of BYTES from FROM to TO by each of sendfile, copy_file_range, and splice through a pipe. */
void verb_copies(char **given)
{
	long times = atol(given[2]), bytes = atol(given[3]);
	int from = open_new(given[0]), to = open_new(given[1]), ends[2];

	CHECK(from >= 0 && to >= 0 && !pipe(ends) && !ftruncate(from, bytes));
	for (long i = 0; i < times; i++) {
		loff_t zero = 0, start = 0;

		CHECK(lseek(to, 0, SEEK_SET) == 0);
		CHECK(sendfile(to, from, &zero, bytes) == bytes);
		zero = 0;
		CHECK(copy_file_range(from, &zero, to, &start, bytes, 0) == bytes);
		zero = start = 0;
		CHECK(splice(from, &zero, ends[1], NULL, bytes, 0) == bytes);
		CHECK(splice(ends[0], NULL, to, &start, bytes, 0) == bytes);
	}
}

/* TIMES writes and reads of BYTES at the beginning of PATH, by io_uring, eight at a time. */
void verb_uring(char **given)
{
	long times = atol(given[1]), bytes = atol(given[2]);
	struct io_uring ring;
	struct io_uring_cqe *done;
	char *buffer = calloc(1, bytes);
	int fd = open_new(given[0]);

	CHECK(fd >= 0 && pwrite(fd, buffer, bytes, 0) == bytes && !io_uring_queue_init(16, &ring, 0));
	for (long i = 0; i < times; i += 8) {
		for (int n = 0; n < 16; n++) {
			struct io_uring_sqe *request = io_uring_get_sqe(&ring);

			if (n & 1)
				io_uring_prep_read(request, fd, buffer, bytes, 0);
			else
				io_uring_prep_write(request, fd, buffer, bytes, 0);
		}
		CHECK(io_uring_submit_and_wait(&ring, 16) == 16);
		for (int n = 0; n < 16; n++) {
			CHECK(!io_uring_wait_cqe(&ring, &done) && done->res == bytes);
			io_uring_cqe_seen(&ring, done);
		}
	}
	io_uring_queue_exit(&ring);
}

/* A queue of io_uring with room for ENTRIES requests, and COMPLETIONS of them. */
static void open_queue(struct io_uring *ring, unsigned entries, unsigned completions)
{
	struct io_uring_params how = { .flags = IORING_SETUP_CQSIZE, .cq_entries = completions };

	CHECK(!io_uring_queue_init_params(entries, ring, &how));
}

/* TIMES writes of BYTES at the beginning of PATH by io_uring, whose success it does not want to be told. */
void verb_uringskip(char **given)
{
	long times = atol(given[1]), bytes = atol(given[2]);
	struct io_uring ring;
	struct io_uring_cqe *done;
	char *buffer = calloc(1, bytes);
	int fd = open_new(given[0]);

	open_queue(&ring, 16, 32);
	for (long i = 0; i < times; i++) {
		struct io_uring_sqe *request = io_uring_get_sqe(&ring);

		io_uring_prep_write(request, fd, buffer, bytes, 0);
		request->flags |= IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK;
		io_uring_prep_nop(io_uring_get_sqe(&ring));
		CHECK(io_uring_submit_and_wait(&ring, 1) == 2 && !io_uring_wait_cqe(&ring, &done));
		io_uring_cqe_seen(&ring, done);
	}
	io_uring_queue_exit(&ring);
}

/* TIMES reads of BYTES at the beginning of PATH by io_uring, into a queue that has room for two completions. */
void verb_uringfull(char **given)
{
	long times = atol(given[1]), bytes = atol(given[2]);
	struct io_uring ring;
	struct io_uring_cqe *done;
	char *buffer = calloc(1, bytes);
	int fd = open_new(given[0]);

	CHECK(fd >= 0 && pwrite(fd, buffer, bytes, 0) == bytes);
	open_queue(&ring, 1, 2);
	for (long i = 0; i < times; i++) {
		io_uring_prep_read(io_uring_get_sqe(&ring), fd, buffer, bytes, 0);
		CHECK(io_uring_submit(&ring) == 1);
	}
	for (long i = 0; i < times; i++) {
		CHECK(!io_uring_wait_cqe(&ring, &done) && done->res == bytes);
		io_uring_cqe_seen(&ring, done);
	}
	io_uring_queue_exit(&ring);
}

/* A multishot read of a pipe that has BYTES: says whether the kernel knows it. */
void verb_uringmultishot(char **given)
{
	long bytes = atol(given[0]);
	struct io_uring ring;
	struct io_uring_sqe *request;
	struct io_uring_cqe *done;
	char *buffer = calloc(1, bytes);
	int ends[2];

	CHECK(!pipe(ends) && write(ends[1], buffer, bytes) == bytes);
	open_queue(&ring, 4, 8);
	io_uring_prep_provide_buffers(io_uring_get_sqe(&ring), buffer, bytes, 1, 0, 0);
	CHECK(io_uring_submit_and_wait(&ring, 1) == 1 && !io_uring_wait_cqe(&ring, &done) && done->res >= 0);
	io_uring_cqe_seen(&ring, done);
	request = io_uring_get_sqe(&ring);
	io_uring_prep_rw(49 /* IORING_OP_READ_MULTISHOT */, request, ends[0], NULL, 0, -1);
	request->flags |= IOSQE_BUFFER_SELECT;
	CHECK(io_uring_submit_and_wait(&ring, 1) == 1 && !io_uring_wait_cqe(&ring, &done));
	printf("known:%d\n", done->res == bytes);
	io_uring_queue_exit(&ring);
}

static char **thread_given;

static void *rw_thread(void *number)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s.%ld", thread_given[1], (long)number);
	rw(path, atol(thread_given[2]), atol(thread_given[3]));
	return NULL;
}

/* N threads, each of which does `rw` on a file of its own beside PATH. */
void verb_rwthreads(char **given)
{
	long count = atol(given[0]);
	pthread_t *threads = calloc(count, sizeof(*threads));

	thread_given = given;
	for (long i = 0; i < count; i++)
		CHECK(!pthread_create(&threads[i], NULL, rw_thread, (void *)i));
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

/* vfork()s a child that execs the script PATH, TIMES. */
void verb_script(char **given)
{
	for (long i = atol(given[1]); i > 0; i--) {
		pid_t pid = vfork();

		if (!pid) {
			execl(given[0], given[0], (char *)NULL);
			_exit(97);
		}
		CHECK(waitpid(pid, NULL, 0) == pid);
	}
}

/* Waits in a read from a pipe for TIMES × MS. */
void verb_awaitpipe(char **given)
{
	struct timespec pause = { 0, atol(given[1]) * 1000000 };
	int ends[2];
	char byte;

	CHECK(!pipe(ends));
	for (long i = atol(given[0]); i > 0; i--) {
		pid_t pid = fork();

		if (!pid) {
			nanosleep(&pause, NULL);
			_exit(write(ends[1], "", 1) != 1);
		}
		CHECK(read(ends[0], &byte, 1) == 1);
		waitpid(pid, NULL, 0);
	}
}

/* Writes a byte to FILE for ever, and says in memory of SHARED how often it has. */
void verb_write(char **given)
{
	int fd = open_new(given[0]), shared = open(given[1], O_RDWR);
	volatile long *written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);

	CHECK(fd >= 0 && written != MAP_FAILED);
	for (;;) {
		CHECK(pwrite(fd, "", 1, 0) == 1);
		++*written;
	}
}

/* Makes a cgroup FOLDER below its own, moves there, and does `rw`. */
void verb_rwbelow(char **given)
{
	char procs[4096];
	int fd;

	CHECK(!mkdir(given[0], 0755));
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", given[0]);
	fd = open(procs, O_WRONLY);
	CHECK(fd >= 0 && write(fd, "0", 1) == 1);
	close(fd);
	rw(given[1], atol(given[2]), atol(given[3]));
}
