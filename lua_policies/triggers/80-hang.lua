-- Hang: a job that seems to hang is looked at, and an event asks the site's hub to mail somebody.

on("hang", {HangSuspected = true}, function(event, run)
    run:evidence()
    run:send("a job of " .. run.Owner .. " seems to hang: " .. event.HangCause, {mail = true})
end)
