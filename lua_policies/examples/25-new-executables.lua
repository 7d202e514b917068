-- New executables: what a user has not run within thirty days, as far as this node knows, is watched closely for ten minutes.
-- (The node remembers the last 10,000 executables, until its policy child is started again: then all are new once.)

rule "new executable" {
    when = function(job) return not seen(job.Owner .. " " .. job.Cmd, 30) end,
    level = "io", for_seconds = 600, reason = "new on this node",
}
