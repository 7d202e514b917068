/* Which folders the job reads, by inode, and in how many calls: a probe at the entry of a kernel function. */
#include <linux/fs.h>

struct folder {
	u64 inode;
	u32 device;
	u32 unused;
};

BPF_HASH(listed, struct folder);

int kprobe__iterate_dir(struct pt_regs *context, struct file *file)
{
	struct folder key = {};

	if (!JOB())
		return 0;
	key.inode = file->f_inode->i_ino;
	key.device = file->f_inode->i_sb->s_dev;
	listed.increment(key);
	return 0;
}
