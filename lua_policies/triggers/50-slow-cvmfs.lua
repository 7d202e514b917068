-- Slow CVMFS: requests that take a second on average, over ten seconds. Level io then says what the job asks for.

on("metric", function(event, run, memory)
    local requests = run.usage.Server.Cvmfs.Requests - run:ago("Server.Cvmfs.Requests", 10)
    local seconds = run.usage.Server.Cvmfs.Seconds - run:ago("Server.Cvmfs.Seconds", 10)
    if requests >= 5 and seconds > requests and event.Time > (memory.until_then or 0) then
        memory.until_then = event.Time + 300
        run:raise("io", 300, "CVMFS answers slowly")
    end
end)
