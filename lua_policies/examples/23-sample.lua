-- A sample: one job in a hundred, always the same ones, is watched closely, so that there is something to compare with.

rule "sample" { sample = 0.01, level = "io", reason = "one job in a hundred" }
