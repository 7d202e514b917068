-- A login shell in a job: somebody may sit at it. A program's first argument that begins with - is how login begins one.

local begins_so, has_l, has_login = glob "-*", glob "* -l", glob "* --login"

on("exec", {Program = one_of {"bash", "sh", "zsh", "tcsh", "csh", "ksh", "fish", "dash"}}, function(event, run, memory)
    local first = event.CommandLine
    if not memory.told and (begins_so(first) or has_l(first) or has_login(first)) then
        memory.told = true
        run:note("a login shell runs in this job: " .. event.Program)
        run:send("a login shell in a job of " .. run.Owner)
    end
end)
