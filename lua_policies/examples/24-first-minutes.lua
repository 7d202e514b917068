-- The first five minutes of each job are watched closely, when it reads its software and opens its files; then basic.

rule "first minutes" { for_seconds = 300, level = "io", reason = "the first five minutes" }
