-- Seems to hang: two looks at its threads found a wait that does not end; for ten minutes its waits and calls are counted.

rule "seems to hang" {
    when = { ["usage.Hang.Suspected"] = 1 },
    level = "io", for_seconds = 600, priority = 30, reason = "it makes no progress",
}
