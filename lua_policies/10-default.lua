-- The policy that ships: a job is watched as closely as it asks for with
--     +JobLensLevel = "io"
-- in its submit file, never above the site's JOBLENS_MAX_LEVEL, and at
-- JOBLENS_DEFAULT_LEVEL where it asks for nothing (or for what is no level).
--
-- To change it, copy it to /etc/joblens/policies.d under the same name, which replaces this file,
-- or add a file such as 20-site.lua there, whose rules go before these. See docs/policies.md.

rule "as asked" { level = "requested" }
