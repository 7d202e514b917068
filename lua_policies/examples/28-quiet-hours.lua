-- Quiet hours: while the nightly backup runs, from ten in the evening to six, no job is watched more closely than basic.

rule "quiet hours" { during = "22:00-06:00", cap = "basic", reason = "quiet hours, for the backup" }
