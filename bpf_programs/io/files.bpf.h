/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* From a descriptor or a path to the class of its file system.
 *
 * Each function is there twice, by its argument `typed`: where the kernel has bpf_rdonly_cast (6.2), members are
 * read as in C, which costs a load; elsewhere each is a call of bpf_probe_read_kernel, 25 ns.
 */
#ifndef JOBLENS_FILES_BPF_H
#define JOBLENS_FILES_BPF_H

#include "io.bpf.h"

enum {	/* in the order of classes.py */
	FILE_CVMFS, FILE_EOS, FILE_XROOTDFS, FILE_FUSE, FILE_NFS, FILE_LUSTRE, FILE_GPFS, FILE_BEEGFS, FILE_CEPH,
	FILE_LOCAL, FILE_OVERLAY, FILE_TMPFS, FILE_PIPE, FILE_SOCKET, FILE_TTY, FILE_OTHER,
};
enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFIFO = 0010000, S_IFCHR = 0020000 };
enum { AT_FDCWD = -100 };
enum { NAME_BYTES = 40, PATH_BYTES = 248 };
enum { OF_THE_ROOT = 0x100 };

/* Type of a file system as mountinfo writes it, `fuse.cvmfs2`, and its class. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, char[NAME_BYTES]);
	__type(value, u32);
} jl_fs_types SEC(".maps");

struct mount_prefix { u32 bits; char path[PATH_BYTES]; };

/* Mount points, each with a slash at its end, and their classes. That of `/` is marked: a container's is another. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct mount_prefix);
	__type(value, u32);
} jl_mounts SEC(".maps");

/* What a CPU remembers of superblocks; a superblock's address can be another's a second later, so the agent makes it
 * forget all of them with every round. */
MAPPED_ARRAY(jl_io_supers, struct io_superblocks);	/* CPUs */

/* Room that the stack has not, for each CPU and each program that can interrupt another. */
enum { SCRATCH_OF_CALLS, SCRATCH_OF_SWITCH, SCRATCH_OF_URING, SCRATCH_OF_SLEEPERS, SCRATCHES };
struct scratch { struct mount_prefix prefix; char name[64]; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} jl_io_scratch SEC(".maps");	/* CPUs × SCRATCHES */

/* Where a look-up happens. */
struct place { u32 cpu; u32 scratch; };

/* In an object of its own: where the kernel lacks it, libbpf would look for it in all modules, which takes
 * CAP_SYS_ADMIN. */
#ifndef BY_READS
extern void *bpf_rdonly_cast(const void *object, u32 btf_id) __ksym;
#define CAST(type, address) ((type *)bpf_rdonly_cast((const void *)(address), bpf_core_type_id_kernel(type)))
#else
#define CAST(type, address) ((type *)(address))
#endif
#define GET(pointer, member) (typed ? (pointer)->member : BPF_CORE_READ(pointer, member))

/* By the name of its type; of a type that is not in the table by whether it has a block device. */
static __noinline u32 class_by_name(struct super_block *given, u32 scratch_index)
{
	struct super_block *sb = given;
	struct scratch *scratch = bpf_map_lookup_elem(&jl_io_scratch, &scratch_index);
	u32 *class;

	if (!scratch)
		return FILE_OTHER;
	__builtin_memset(scratch->name, 0, sizeof(scratch->name));

	long length = bpf_probe_read_kernel_str(scratch->name, 20, BPF_CORE_READ(sb, s_type, name));
	const char *subtype = BPF_CORE_READ(sb, s_subtype);

	if (subtype && length > 1 && length <= 20) {
		scratch->name[length - 1] = '.';
		bpf_probe_read_kernel_str(scratch->name + length, NAME_BYTES - 20, subtype);
		class = bpf_map_lookup_elem(&jl_fs_types, scratch->name);
		if (class)
			return *class;
		__builtin_memset(scratch->name, 0, sizeof(scratch->name));
		bpf_probe_read_kernel_str(scratch->name, 20, BPF_CORE_READ(sb, s_type, name));
	}
	class = bpf_map_lookup_elem(&jl_fs_types, scratch->name);
	if (class)
		return *class;
	return BPF_CORE_READ(sb, s_bdev) ? FILE_LOCAL : FILE_OTHER;
}

static __always_inline u32 class_of_superblock(struct super_block *sb, struct place place, const bool typed)
{
	struct io_superblocks *cache = bpf_map_lookup_elem(&jl_io_supers, &place.cpu);

	if (!sb || !cache)
		return FILE_OTHER;

	u32 device = GET(sb, s_dev);
	u32 at = device & (SUPERBLOCKS - 1);

	if (cache->address[at] == (u64)sb && cache->device[at] == device)
		return cache->class[at] & (FILE_CLASSES - 1);

	u32 class = class_by_name(sb, place.cpu * SCRATCHES + place.scratch) & (FILE_CLASSES - 1);

	/* another program may interrupt this one here */
	cache->address[at] = 0;
	barrier();
	cache->device[at] = device;
	cache->class[at] = class;
	barrier();
	cache->address[at] = (u64)sb;
	return class;
}

static __always_inline bool is_terminal(u32 device)
{
	u32 major = device >> 20;

	return major == 4 || major == 5 || major == 204 || (major >= 136 && major <= 143);
}

static __always_inline u32 class_of_file(struct file *file, struct place place, const bool typed)
{
	struct inode *inode = file ? GET(file, f_inode) : 0;

	if (!inode)
		return FILE_OTHER;

	u32 type = GET(inode, i_mode) & S_IFMT;

	if (type == S_IFSOCK)
		return FILE_SOCKET;
	if (type == S_IFIFO)
		return FILE_PIPE;
	if (type == S_IFCHR)
		return is_terminal(GET(inode, i_rdev)) ? FILE_TTY : FILE_OTHER;
	return class_of_superblock(GET(inode, i_sb), place, typed);
}

/* The file may have been closed since: then it is nobody's, or whoever has its number now. */
static __always_inline u32 class_of_fd(struct task_struct *task, u32 fd, struct place place, const bool typed)
{
	struct files_struct *files = GET(task, files);
	struct fdtable *table = files ? GET(files, fdt) : 0;

	if (!table || fd >= GET(table, max_fds))
		return FILE_OTHER;

	struct file **slot = GET(table, fd) + fd;
	struct file *file = 0;

	if (typed)
		/* a structure of the kernel's that begins with a pointer to a file: no helper is needed to follow it */
		file = CAST(struct poll_table_entry, slot)->filp;
	else
		bpf_probe_read_kernel(&file, sizeof(file), slot);
	return class_of_file(file, place, typed);
}

static __always_inline u32 class_of_root(struct task_struct *task, bool root, struct place place)
{
	struct vfsmount *mount = root ? BPF_CORE_READ(task, fs, root.mnt) : BPF_CORE_READ(task, fs, pwd.mnt);

	return class_of_superblock(BPF_CORE_READ(mount, mnt_sb), place, false);
}

/* That in which a sleeping thread looks for a path now; false where it does not. */
static __always_inline bool class_of_walk(struct task_struct *task, struct place place, u32 *class)
{
	struct nameidata *walk = bpf_core_field_exists(task->nameidata) ? BPF_CORE_READ(task, nameidata) : 0;

	if (walk)
		*class = class_of_superblock(BPF_CORE_READ(walk, path.mnt, mnt_sb), place, false);
	return walk;
}

/* Whether the walk of a thread that waits has come to a FIFO: then it waits for somebody to open its other end. */
static __always_inline bool opens_fifo(struct task_struct *task)
{
	struct nameidata *walk = bpf_core_field_exists(task->nameidata) ? BPF_CORE_READ(task, nameidata) : 0;

	return walk && (BPF_CORE_READ(walk, path.dentry, d_inode, i_mode) & S_IFMT) == S_IFIFO;
}

/* Of a path there is no file: the mount point with the longest prefix of it. A path that begins at a folder is taken
 * to end on that folder's file system, `..` and symbolic links are not followed, and mounts that only a container
 * sees are not known; its root is. */
static __always_inline u32 class_of_path(struct task_struct *task, s32 folder, u64 path, struct place place,
					 const bool typed, bool *unread)
{
	u32 index = place.cpu * SCRATCHES + place.scratch;
	struct scratch *scratch = bpf_map_lookup_elem(&jl_io_scratch, &index);

	if (!scratch)
		return FILE_OTHER;

	long length = bpf_probe_read_user_str(scratch->prefix.path, PATH_BYTES, (void *)path);

	if (length <= 0 || length > PATH_BYTES) {
		*unread = true;
		return FILE_OTHER;
	}
	if (scratch->prefix.path[0] != '/')
		return folder == AT_FDCWD ? class_of_root(task, false, place) : class_of_fd(task, folder, place, typed);
	scratch->prefix.path[length - 1] = '/';
	scratch->prefix.bits = length * 8;

	u32 *class = bpf_map_lookup_elem(&jl_mounts, &scratch->prefix);

	if (!class || *class & OF_THE_ROOT)
		return class_of_root(task, true, place);
	return *class & (FILE_CLASSES - 1);
}

#endif
