-- By resource template: whoever asks for GPUs, for much memory for each core, or for a whole node, is watched closely.

rule "gpus" { when = { RequestGPUs = above(0) }, level = "io", reason = "GPUs are dear" }
rule "much memory" { when = "RequestMemory > 8192 * RequestCpus", level = "io", reason = "much memory for each core" }
rule "whole node" { when = "RequestCpus >= 64", level = "io", priority = 10, reason = "it has a whole node" }
