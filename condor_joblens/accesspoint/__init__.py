"""joblens-door: the access point vouches for who asks about a running job, if he is its user or a super user.

- door: the process, as condor_master starts it; it holds the key, and has no network
- door_server: its socket, on which people ask
- from_afar: what it has for people on other machines, whose requests the relay brings
- queue_child: the process that asks the schedd, and the system's users
- queue_answer: what these have said, and what follows from it

What carries a warrant to the job's node is no concern of this room.
"""
