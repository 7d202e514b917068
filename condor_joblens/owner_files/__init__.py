"""All that is done in folders and processes of other users, as their owner: in joblensd or by a process for this alone.

joblensd can't become another user. A process of its own can (`helper.py`), and does nothing but what is listed in
`operations.py`. Where joblensd runs without root, there is nobody else to become, and it does the same itself.
"""
