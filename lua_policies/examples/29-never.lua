-- Never watch: a job with +JobLensOptOut = true in its submit file is not watched at all, for its owner's privacy.
-- A site that does not allow this leaves the file out, or takes it back for some in a later file:
--     rule "production has no privacy" { when = { AcctGroup = under "production" }, cap = "trace" }

rule "opt out" { when = { JobLensOptOut = true }, cap = "off", reason = "its owner wants no watching" }
