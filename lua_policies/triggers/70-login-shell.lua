-- A login shell in a job: somebody may sit at it. A program's first argument that begins with - is how login begins one.

on("exec", {Program = one_of {"bash", "sh", "zsh", "tcsh", "csh", "ksh", "fish", "dash"}}, function(event, run, memory)
    local first = event.CommandLine
    if not memory.told and (glob "-*"(first) or glob "* -l"(first) or glob "* --login"(first)) then
        memory.told = true
        run:note("a login shell runs in this job: " .. event.Program)
        run:send("a login shell in a job of " .. run.Owner)
    end
end)
