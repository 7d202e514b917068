"""Job ad -> decision: which level a job is watched at, and why. Knows Lua and ClassAds, no BPF.

    policy_files     reads the policy folders                                            joblensd
    policy_client    hands the child ads (requests), receives decisions                  joblensd
    child_pool       starts and replaces it: policy_child, child_process                 joblensd
    active_policies  which policies are set aside, by their faults                       joblensd
    policy_answers   what joblensd believes of a reply                                   joblensd
    child_frames     the wire between the two; job_identity: names both know             both
    child            the process that has nothing to lose: confine, child_service        the child
    engine           asks the rules about a job: jobad, lua_sandbox, lua/, job_cache     the child
    precedence       which of several rules counts                                       the child
    replay           the rules over jobs of the past, for `joblens policy simulate`      the child

joblensd never parses a job's ad: what an ad or a policy does, it does to the child, and costs one decision.
"""
