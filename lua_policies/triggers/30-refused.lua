-- Refused connects: 1,000 in one job are a server that is down, or a job that tries without a pause. Level io counts them.

on("metric", {["Tcp.Refused"] = at_least(1000)}, function(event, run)
    run:note("1,000 connects were refused")
    run:send("1,000 connects of " .. run.Owner .. " were refused")
end)
