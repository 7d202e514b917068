-- Nobody takes all the close watching of a node: two jobs of each user at a time, and of each accounting group of CMS a
-- tenth of the node's jobs. The least important ones (priority, then the latest) step down to basic.
rule "few for each user" { max_jobs = 2, per = "owner" }
rule "a tenth for each group of cms" { when = { AcctGroup = under "group_cms" }, max_share = 0.1, per = "group" }
