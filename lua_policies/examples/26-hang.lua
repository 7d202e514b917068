-- Suspected hang: a job that has used no CPU for ten minutes is watched closely for a minute, to see what it waits for.

rule "suspected hang" {
    when = function(job, slot, node, usage) return usage.IdleSeconds > 600 end,
    level = "io", for_seconds = 60, priority = 20, reason = "no CPU for ten minutes",
}
