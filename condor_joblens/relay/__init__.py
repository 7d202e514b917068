"""Commands from afar on their way: an access point's relay, a server in between, and the node's relay.

None of them has a say: what they carry is signed and sealed (control/warrants.py). They can drop it, and nothing else.

- messages: what they say to each other, over one WebSocket that each relay opens to the server
- server: joblens-hub relay, where all relays come together
- relay: joblens-relay, on a node and on an access point; it has the network, and no privilege
- carried: how a relay on a node hands a command to joblensd, and one on an access point a request to joblens-door
- local: the socket on which users of an access point hand over what is to be carried
- elsewhere: the relay of one person on another machine, which his command starts
"""
