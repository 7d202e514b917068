-- Disk full: a job whose calls fail with ENOSPC says so in its ad. Level io counts these.

on("metric", {["Errors.ENOSPC"] = above(0)}, function(event, run)
    run:note("a file system of this job is full (ENOSPC)")
end)
