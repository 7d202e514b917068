-- By user group: the people who hunt a problem this week have their jobs watched closely.

rule "the hunters" { when = { Owner = { "alice", "bob" } }, level = "io", reason = "its owner hunts a problem" }
