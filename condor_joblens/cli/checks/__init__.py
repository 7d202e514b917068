"""The preconditions that `joblens doctor` looks at: a function each, from a Node to Findings."""
