-- Fork bomb: a job that makes 5,000 processes within ten seconds, and has 500 of them alive.

on("metric", {["Process.Live"] = at_least(500)}, function(event, run)
    if run.usage.Process.Forked - run:ago("Process.Forked", 10) >= 5000 then
        run:note("5,000 processes in ten seconds: a fork bomb?")
        run:send("a fork bomb of " .. run.Owner .. "?", {mail = true})
    end
end)
