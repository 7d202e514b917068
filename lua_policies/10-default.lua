-- The policy that ships: a job is watched as closely as it asks for with
--     +JobLensLevel = "io"
-- in its submit file, never above the site's JOBLENS_MAX_LEVEL, and at
-- JOBLENS_DEFAULT_LEVEL where it asks for nothing (or for what is no level).
--
-- To change it, copy it to /etc/joblens/policies.d under the same name, which replaces this file,
-- or add a file such as 20-site.lua there, which is asked after it and has the last word.
-- What job, slot and level hold is said in docs/policies.md.

return function(job, slot, level)
    if level.requested then
        return lowest(level.requested, level.max), "the job asked for it"
    end
    return level.default, "the site's default"
end
