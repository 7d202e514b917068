-- 100 failed opens of one path in a minute: a file that is missing, and a job that waits for it. Level trace has the paths.

on("failed_open", {Count = at_least(100)}, function(event, run, memory)
    if memory[event.Path] then return end
    memory[event.Path] = true
    run:note("100 failed opens in a minute: " .. event.Error .. " " .. event.Path)
    run:send(event.Program .. " of " .. run.Owner .. " fails to open one path: " .. event.Error)
end)
