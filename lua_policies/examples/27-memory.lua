-- Memory near its limit: a job that has filled nine tenths of what it asked for is watched closely, as long as it does.

rule "memory near its limit" {
    when = function(job, slot, node, usage) return usage.Memory.ResidentBytes > 0.9 * job.RequestMemory * 2^20 end,
    level = "io", priority = 20, reason = "nine tenths of its memory are full",
}
