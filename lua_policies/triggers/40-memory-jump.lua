-- Memory jump: a job that takes 2 GB more within ten seconds is sampled for a minute, to see what does that.

on("metric", function(event, run, memory)
    local more = run.usage.Memory.ResidentBytes - run:ago("Memory.ResidentBytes", 10)
    if more > 2e9 and event.Time > (memory.until_then or 0) then
        memory.until_then = event.Time + 60
        run:raise("profile", 60, "2 GB more memory in ten seconds")
    end
end)
