-- Core dump: what the job did last is kept, at level trace (`joblens job ID --before-death`), and its ad says which program.

on("exit", {CoreDumped = true}, function(event, run)
    run:tag()
    run:note("core dump of " .. event.Program .. " by signal " .. event.ExitSignal)
end)
