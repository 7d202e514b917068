"""Stacks of a job's threads, and what they wait for. It is all done by a child of joblensd that is the job's owner.

- starter: becomes the owner, in a process of its own, for each look at a job
- children: joblensd's end of that
- look: what the child does: takes the evidence, the surest first
- threads, process, file_locks, sockets: what the kernel tells of the job
- alike: which threads are told one by one
- full: whether it writes to a file system without room
- waits, python_lock, verdict: what each thread waits for, and the job as a whole
- elf, unwind, symbols, demangle: from registers and memory to names of functions
- python, python_offsets, python_lines: the same of Python, in the memory of its interpreter
- demangle_process: what may die of a name of a job's
- mixed: both in one stack
- steady: whether a run has computed in the same places all the time
- samples, names: what was sampled in a minute, and the profile with names that is kept of it
"""
