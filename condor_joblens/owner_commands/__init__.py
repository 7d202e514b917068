"""What is done in a running job when somebody asks: by a child that has become the job's owner, and can do no more.

- ps, tail, head, ls, kill: the verbs, one file each; `main` is what the child runs
- beneath: opens regular files of the job's folder, and nothing outside of it
- views: what the job calls a file of that folder, where its mounts are others; mount_table: what it sees
- job_processes: the processes in the job's cgroup, by its descriptor
- answers: what the child says to joblensd

profiling/starter.py makes the child, and commands/ decide who may ask. It belongs to the privileged half.
"""
