/* A job that stands still, in a way that it is told; without frame pointers, as most C++ is.
 *   hang WAY PATH [idle]
 * HANG_TOLD, a file: what it waits for and who has it, a line each, as it knows itself. Threads and processes are told as
 * they are numbered in its pid namespace.
 */
#include <alloca.h>
#include <arpa/inet.h>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static volatile long sink;
static std::mutex first, second;

static int checked(long result)
{
	if (result < 0) {
		perror("hang");
		_exit(99);
	}
	return static_cast<int>(result);
}

static int told = -1;

static void tell(const char *what, const std::string &value)
{
	dprintf(told, "%s %s\n", what, value.c_str());
}

static void tell(const char *what, long number) { tell(what, std::to_string(number)); }

static void tell_open(int descriptor)
{
	char target[4096];
	long size = checked(readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof(target)));

	tell("descriptor", descriptor);
	tell("target", std::string(target, size));
}

static long number_of_thread() { return syscall(SYS_gettid); }

__attribute__((noinline)) static void wait_for_ever(const std::string &way, const std::string &path);

__attribute__((noinline)) static void take_both(std::mutex &one, std::mutex &other, int all = 2)
{
	static std::mutex both;
	static std::condition_variable changed;
	static int taken;

	one.lock();
	{
		std::unique_lock<std::mutex> lock(both);
		taken++;
		changed.notify_all();
		changed.wait(lock, [all] { return taken == all; });
	}
	tell("cycle", number_of_thread());
	other.lock();
	sink = 1;
}

static void sleep_long(long seconds)
{
	struct timespec time = { seconds, 0 };

	nanosleep(&time, nullptr);
}

/* Both are new sockets; the port is the listener's. */
static int connect_both(int &listener, int &client)
{
	struct sockaddr_in address = {};
	socklen_t size = sizeof(address);

	listener = checked(socket(AF_INET, SOCK_STREAM, 0));
	client = checked(socket(AF_INET, SOCK_STREAM, 0));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	checked(bind(listener, reinterpret_cast<struct sockaddr *>(&address), size));
	checked(listen(listener, 1));
	checked(getsockname(listener, reinterpret_cast<struct sockaddr *>(&address), &size));
	checked(connect(client, reinterpret_cast<struct sockaddr *>(&address), size));
	return ntohs(address.sin_port);
}

static int connected()
{
	int listener, client, port = connect_both(listener, client);

	tell("protocol", "tcp");
	tell("peer", "127.0.0.1:" + std::to_string(port));
	tell_open(client);
	return client;
}

/* By raw calls, as liburing makes them: one request, and the wait for its end. */
static void receive_by_uring(int client)
{
	static char byte;
	struct io_uring_params params = {};
	int ring = checked(syscall(SYS_io_uring_setup, 4, &params));
	char *queue = static_cast<char *>(mmap(nullptr, params.sq_off.array + 4 * sizeof(unsigned), PROT_READ | PROT_WRITE,
					       MAP_SHARED, ring, IORING_OFF_SQ_RING));
	struct io_uring_sqe *requests = static_cast<struct io_uring_sqe *>(
		mmap(nullptr, 4 * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES));

	memset(requests, 0, sizeof(*requests));
	requests->opcode = IORING_OP_RECV;
	requests->fd = client;
	requests->addr = reinterpret_cast<unsigned long>(&byte);
	requests->len = 1;
	__atomic_store_n(reinterpret_cast<unsigned *>(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
	checked(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0));
}

static void hold_then_sleep(std::mutex &mutex)
{
	mutex.lock();
	tell("holder_tid", number_of_thread());
	sleep_long(1000);
}

/* In a file of /dev/shm, which goes by no name any more. */
static pthread_mutex_t *shared_mutex()
{
	char name[] = "/dev/shm/joblens-hang-XXXXXX";
	int file = checked(mkstemp(name));
	pthread_mutexattr_t shared;

	checked(ftruncate(file, 4096));
	checked(unlink(name));
	tell("file", std::string(name) + " (deleted)");

	void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	pthread_mutex_t *mutex = static_cast<pthread_mutex_t *>(memory);

	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(mutex, &shared);
	return mutex;
}

__attribute__((noinline)) static void in_handler(int)
{
	wait_for_ever("pause", "");
	sink = 2;
}

static int opened(const std::string &path)
{
	int file = checked(open(path.c_str(), O_RDWR));

	tell_open(file);
	return file;
}

static void make_pipe(int (&ends)[2], int waits)
{
	checked(pipe(ends));
	tell_open(ends[waits]);
}

/* A stack that is aligned to more than a call leaves, and of a size that is known when it runs. */
struct alignas(64) Wide { long words[8]; };

__attribute__((noinline)) static void in_realigned(long size, const std::string &path)
{
	Wide wide = {};
	char *room = static_cast<char *>(alloca(size));

	room[0] = static_cast<char>(size);
	sink = reinterpret_cast<long>(&wide) + room[0];
	wait_for_ever("pause", path);
	sink = wide.words[3] + room[0];
}

__attribute__((noinline)) static void wait_for_ever(const std::string &way, const std::string &path)
{
	char byte;
	int ends[2];

	if (way == "flock") {
		checked(flock(opened(path), LOCK_EX));
	} else if (way == "hold") {
		checked(flock(checked(open(path.c_str(), O_RDWR)), LOCK_EX));
		sleep_long(1000);
	} else if (way == "fcntl") {
		struct flock lock = {};

		lock.l_type = F_WRLCK;
		checked(fcntl(opened(path), F_SETLKW, &lock));
	} else if (way == "pipe") {
		make_pipe(ends, 0);
		tell("holder_pid", getpid());
		checked(read(ends[0], &byte, 1));
	} else if (way == "pipe_of_child") {
		make_pipe(ends, 0);
		if (checked(fork()) == 0) {
			close(ends[0]);
			tell("holder_pid", getpid());
			sleep_long(1000);
		}
		close(ends[1]);
		checked(read(ends[0], &byte, 1));
	} else if (way == "unread_child") {
		/* who starts a program, and reads what it says when it has ended */
		checked(pipe(ends));
		tell("cycle", getpid());
		if (checked(fork()) == 0) {
			static char much[1 << 20];

			close(ends[0]);
			tell("cycle", getpid());
			checked(write(ends[1], much, sizeof(much)));
		}
		close(ends[1]);
		checked(waitpid(-1, nullptr, 0));
	} else if (way == "locked_out_child") {
		int file = checked(open(path.c_str(), O_RDWR));

		checked(lockf(file, F_LOCK, 0));
		tell("cycle", getpid());
		if (checked(fork()) == 0) {
			tell("cycle", getpid());
			checked(lockf(file, F_LOCK, 0));
		}
		checked(waitpid(-1, nullptr, 0));
	} else if (way == "behind_terminal") {
		int master = checked(posix_openpt(O_RDWR | O_NOCTTY));

		checked(grantpt(master));
		checked(unlockpt(master));
		checked(open(ptsname(master), O_RDWR | O_NOCTTY));
		tell_open(master);
		checked(read(master, &byte, 1));
	} else if (way == "fifo") {
		tell("target", path);
		checked(open(path.c_str(), O_RDONLY));
	} else if (way == "read_file") {
		/* until its server does not answer any more */
		for (int file = opened(path); ; checked(pread(file, &byte, 1, 0)))
			usleep(1000);
	} else if (way == "touch_file" || way == "write_from_file") {
		int file = opened(path), memory = checked(memfd_create("hang", 0));
		char *pages = static_cast<char *>(mmap(nullptr, 1 << 20, PROT_READ, MAP_SHARED, file, 0));

		for (;; usleep(1000)) {
			checked(madvise(pages, 1 << 20, MADV_DONTNEED));
			checked(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
			if (way == "touch_file")
				sink = sink + pages[0];
			else
				checked(pwrite(memory, pages, 1, 0));
		}
	} else if (way == "recv") {
		checked(recv(connected(), &byte, 1, 0));
	} else if (way == "uring") {
		receive_by_uring(connected());
	} else if (way == "sleep") {
		sleep_long(4321);
	} else if (way == "child") {
		if (checked(fork()) == 0) {
			tell("holder_pid", getpid());
			sleep_long(4321);
		}
		checked(waitpid(-1, nullptr, 0));
	} else if (way == "mutex") {
		std::thread holder(hold_then_sleep, std::ref(first));

		while (first.try_lock()) {
			first.unlock();
			usleep(1000);
		}
		first.lock();
	} else if (way == "forked_mutex") {
		/* the child has a copy of the mutex, and not of the thread that will unlock it */
		std::thread holder([] {
			first.lock();
			sleep_long(1000);
		});

		while (first.try_lock()) {
			first.unlock();
			usleep(1000);
		}
		if (checked(fork()) == 0) {
			tell("holder_pid", getpid());
			first.lock();
		}
		checked(waitpid(-1, nullptr, 0));
	} else if (way == "dead_owner" || way == "shared_mutex") {
		/* a mutex in shared memory: a child has taken it, which sleeps, or has been killed */
		int ready[2];
		pid_t child;
		pthread_mutex_t *mutex = shared_mutex();

		checked(pipe(ready));
		if ((child = checked(fork())) == 0) {
			pthread_mutex_lock(mutex);
			checked(write(ready[1], "r", 1));
			sleep_long(4321);
		}
		checked(read(ready[0], &byte, 1));
		tell(way == "dead_owner" ? "dead" : "holder_pid", child);
		if (way == "dead_owner") {
			checked(kill(child, SIGKILL));
			checked(waitpid(child, nullptr, 0));
		}
		pthread_mutex_lock(mutex);
	} else if (way == "deadlock") {
		std::thread one([] { take_both(first, second); }), other([] { take_both(second, first); });

		one.join();
	} else if (way == "crowd") {
		/* half wait for a mutex that nobody gives back, half for a condition that never holds */
		static std::condition_variable changed;
		pthread_attr_t small;
		pthread_t one;

		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 64 << 10);
		first.lock();
		for (int thread = 0; thread < 2500; thread++)
			checked(-pthread_create(&one, &small, [](void *number) -> void * {
				std::unique_lock<std::mutex> lock(number ? first : second);

				changed.wait(lock);
				return nullptr;
			}, reinterpret_cast<void *>(thread % 2L)));
		pause();
	} else if (way == "own_mutex") {
		tell("cycle", number_of_thread());
		first.lock();
		first.lock();
	} else if (way == "join") {
		std::thread one([] {
			char some;

			checked(recv(connected(), &some, 1, 0));
		});

		one.join();
	} else if (way == "condition") {
		std::condition_variable changed;
		std::unique_lock<std::mutex> lock(first);

		changed.wait(lock);
	} else if (way == "stop") {
		raise(SIGSTOP);
	} else if (way == "poll") {
		struct pollfd one = { connected(), POLLIN, 0 };

		checked(poll(&one, 1, -1));
	} else if (way == "select" || way == "epoll") {
		int client = connected(), events = checked(epoll_create1(0));
		struct epoll_event one = {};
		fd_set set;

		FD_ZERO(&set);
		FD_SET(client, &set);
		one.events = EPOLLIN;
		checked(epoll_ctl(events, EPOLL_CTL_ADD, client, &one));
		checked(way == "select" ? select(client + 1, &set, nullptr, nullptr, nullptr) :
					  epoll_wait(events, &one, 1, -1));
	} else if (way == "poll_pipe") {
		make_pipe(ends, 0);
		tell("holder_pid", getpid());

		struct pollfd one = { ends[0], POLLIN, 0 };

		checked(poll(&one, 1, -1));
	} else if (way == "poll_clients") {
		int listener = checked(socket(AF_INET, SOCK_STREAM, 0));
		struct pollfd one = { listener, POLLIN, 0 };

		checked(listen(listener, 1));
		checked(poll(&one, 1, -1));
	} else if (way == "poll_and_sleep") {
		struct pollfd one = { connected(), POLLIN, 0 };

		for (;;)
			checked(poll(&one, 1, 100000));
	} else if (way == "full_pipe") {
		make_pipe(ends, 1);
		tell("holder_pid", getpid());
		for (;;)
			checked(write(ends[1], &byte, 1));
	} else if (way == "vfork") {
		/* the parent goes on when its child runs another program: it never does */
		if (checked(vfork()) == 0)
			for (;;)
				pause();
	} else if (way == "terminal") {
		int master = checked(posix_openpt(O_RDWR | O_NOCTTY));

		checked(grantpt(master));
		checked(unlockpt(master));
		int terminal = checked(open(ptsname(master), O_RDWR | O_NOCTTY));

		tell_open(terminal);
		checked(read(terminal, &byte, 1));
	} else if (way == "three") {
		static std::mutex third;
		std::thread one([] { take_both(first, second, 3); }), other([] { take_both(second, third, 3); }),
			last([] { take_both(third, first, 3); });

		one.join();
	} else if (way == "rwlock") {
		static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

		pthread_rwlock_rdlock(&lock);
		std::thread one([] { pthread_rwlock_wrlock(&lock); });
		one.join();
	} else if (way == "leaked_read") {
		static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

		/* two have read, and have ended without giving it back */
		for (int reader = 0; reader < 2; reader++)
			std::thread([] { pthread_rwlock_rdlock(&lock); }).join();
		pthread_rwlock_wrlock(&lock);
	} else if (way == "writer" || way == "second_writer" || way == "ended_writer") {
		static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
		static const bool ends = way == "ended_writer";
		std::thread one([] {
			pthread_rwlock_wrlock(&lock);
			if (!ends) {
				tell("holder_tid", number_of_thread());
				sleep_long(4321);
			}
		});

		while (pthread_rwlock_tryrdlock(&lock) == 0) {
			pthread_rwlock_unlock(&lock);
			usleep(1000);
		}
		if (ends)
			one.join();
		(way == "second_writer" ? pthread_rwlock_wrlock : pthread_rwlock_rdlock)(&lock);
	} else if (way == "posix_semaphore") {
		sem_t semaphore;

		checked(sem_init(&semaphore, 0, 0));
		checked(sem_wait(&semaphore));
	} else if (way == "udp") {
		struct sockaddr_in address = {};
		socklen_t size = sizeof(address);
		int asker = checked(socket(AF_INET, SOCK_DGRAM, 0)), server = checked(socket(AF_INET, SOCK_DGRAM, 0));

		address.sin_family = AF_INET;
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		checked(bind(server, reinterpret_cast<struct sockaddr *>(&address), size));
		checked(getsockname(server, reinterpret_cast<struct sockaddr *>(&address), &size));
		checked(connect(asker, reinterpret_cast<struct sockaddr *>(&address), size));
		checked(send(asker, "?", 1, 0));
		tell("protocol", "udp");
		tell("peer", "127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
		tell_open(asker);
		checked(recv(asker, &byte, 1, 0));
	} else if (way == "unix") {
		checked(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
		tell("protocol", "unix");
		tell_open(ends[0]);
		checked(read(ends[0], &byte, 1));
	} else if (way == "both_receive") {
		int server, here;

		connect_both(server, here);
		int there = checked(accept(server, nullptr, nullptr)), child = checked(fork());

		checked(close(child ? there : here));
		if (child) {
			tell("cycle", getpid());
			tell("cycle", child);
		}
		checked(recv(child ? here : there, &byte, 1, 0));
	} else if (way == "ofd") {
		struct flock lock = {};

		lock.l_type = F_WRLCK;
		checked(fcntl(opened(path), F_OFD_SETLKW, &lock));
	} else if (way == "accept") {
		int listener = checked(socket(AF_INET, SOCK_STREAM, 0));

		checked(listen(listener, 1));
		checked(accept(listener, nullptr, nullptr));
	} else if (way == "semaphore" || way == "used_semaphore") {
		struct sembuf give = { 1, 2, 0 }, take = { 1, -2, 0 };
		struct semid_ds known;
		int semaphores = checked(semget(way == "semaphore" ? IPC_PRIVATE : getpid(), 2, IPC_CREAT | 0600));

		tell("set", semaphores);
		if (way == "used_semaphore") {
			checked(semop(semaphores, &give, 1));
			checked(semop(semaphores, &take, 1));
			checked(semctl(semaphores, 0, IPC_STAT, &known));
			tell("key", getpid());
			tell("changed", known.sem_otime);
		}
		sink = semop(semaphores, &take, 1);
	} else if (way == "queue") {
		struct { long type; char text[8]; } message;

		sink = msgrcv(checked(msgget(IPC_PRIVATE, 0600)), &message, sizeof(message.text), 0, 0);
	} else if (way == "zombie") {
		if (checked(fork()) == 0)
			_exit(3);
		pause();
	} else if (way == "busy") {
		for (;;)
			sink = sink + 1;
	} else if (way == "pause") {
		pause();
	} else if (way == "handler") {
		signal(SIGUSR1, in_handler);
		raise(SIGUSR1);
	} else if (way == "realigned") {
		in_realigned(200, path);
	} else {
		_exit(98);
	}
	sink = way.size();
}

namespace work {
struct Tree {
	__attribute__((noinline)) void fill(const std::string &way, const std::string &path)
	{
		wait_for_ever(way, path);
		sink = sink + 1;
	}
};
}

int main(int count, char **arguments)
{
	std::mutex idle;
	std::condition_variable never;
	std::vector<std::thread> threads;
	work::Tree tree;

	if (const char *file = getenv("HANG_TOLD"))
		told = checked(open(file, O_WRONLY | O_APPEND));
	/* fifty that have nothing to do */
	for (int thread = 0; count > 3 && thread < 50; thread++)
		threads.emplace_back([&] {
			std::unique_lock<std::mutex> lock(idle);
			never.wait(lock);
		});
	tree.fill(arguments[1], arguments[2]);
	return static_cast<int>(sink & 1);
}
