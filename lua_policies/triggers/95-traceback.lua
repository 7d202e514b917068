-- An exception ended a Python: the ad says which at once, also if the job goes on. Of jobs at level trace that ask for it.

on("traceback", function(event, run)
    run:note("a Python ended: " .. event.Exception)
    run:tag()
end)
