"""Pages and their JSON, for people.

- people: who somebody is, by how he came; who_sees: the one table of who sees what
- reads: what pages ask the store, always for one viewer; live_snapshots: of what they ask about all live runs
- health: a run in a word, with its reason; gaps: holes in a run's samples
- peers: who is at the other end of a Unix socket
- site: Django's settings; middleware: the viewer of a request, and headers; views: a function a page
"""
