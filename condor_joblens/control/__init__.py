"""joblensd's control socket: what can be asked over it, in which frames, by which server and which client.

- frames: bytes, how a request and its answer lie in packets
- verbs: words, what can be asked and with which arguments
- server: the socket in joblensd's loop
- stream: an answer that goes on, within that loop
- audit: lines about commands in a log, and how many a user may ask for
- client: the socket as the command line uses it
- warrants, sealed_answers, keys: commands from afar and their answers, which nobody else can read or change
- sealed_client: such an answer for who has asked
- door: how people ask their access point to vouch for them

Both halves import this room, the privileged one and the others. It imports model and common alone.
"""

SOCKET = "activate.sock"
"""The socket's file in JOBLENS_RUN_DIR. The wrapper's helper has the name compiled in."""

LAST_WORDS = "last_words.sock"
"""The same for what processes say at their end: nothing else that their user asks for takes of its time. What is
loaded into Pythons has the name compiled in."""
