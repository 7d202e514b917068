"""Records, kept: ClickHouse by its own protocol over HTTP, or chDB, its engine, behind the same.

- schema: the tables, made from the metric table
- migrations: what makes the tables of an older hub as ours are
- client: asks and inserts; the only way to the store for all others
- rollups: sums of the runs that ended in an hour, made again for late rows
- server: chDB as a server; one process owns its folder
"""
