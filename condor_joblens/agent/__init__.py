"""joblensd: the privileged process of a node. It wires the rooms together; what they do is theirs."""
