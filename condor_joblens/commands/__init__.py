"""What joblensd does when it is asked over the control socket: one file a verb, and one table of who may ask.

- node: what a command needs of joblensd, and nothing else
- authority: who may ask for what
- dispatch: finds the run that is meant, checks the authority, calls the command
- find_run: which run a person means by a name
- activate: a job's wrapper says that the job is about to start
- level: a person gives a job another level for a while
- artifacts: a person gets what is kept about a run
- evidence: a person gets what the job's threads do and wait for
- owner_verbs: a person has something done in a job, by the job's owner: ps, tail, head, cat, ls, kill
- warrant: somebody for whom the job's access point vouches asks from afar for another verb of these
- watch: a person gets the job's numbers as they are taken

It belongs to the privileged half. agent/ gives it the node, and no networked room imports it.
"""
