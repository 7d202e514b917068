"""Job ad -> decision: which level a job is watched at, and why. Knows Lua and ClassAds, no BPF.

    files       reads the policy folders                                            joblensd
    client      hands the child ads (asked), receives decisions                     joblensd
    children    starts and replaces it: worker, process                             joblensd
    in_force    which policies are set aside, by their faults                       joblensd
    decision    what joblensd believes of a reply                                   joblensd
    frames      the wire between the two; identity: names both know                 both
    child       the process that has nothing to lose: confine, service              the child
    engine      asks the rules about a job: jobad, sandbox, lua/, memory, kept      the child
    precedence  which of several rules counts                                       the child
    weigh       the rules over jobs of the past, for `joblens policy simulate`      the child

joblensd never parses a job's ad: what an ad or a policy does, it does to the child, and costs one decision.
"""
