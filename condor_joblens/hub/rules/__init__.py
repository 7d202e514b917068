"""Rules: what the hub tells people by itself. A red light, mail, and signed posts to an administrator's list of hosts.

- settings: the file of rules
- alarms: what is wrong at a moment, as the pages find it
- firings: each alarm of a rule with its evidence, for as long as it lasts
- mail, webhook: what is sent
- watch: one look after the other, and what follows of it
- trial: what would have fired
"""
