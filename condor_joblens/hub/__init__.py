"""The hub: a site's jobs on pages and as JSON. docs/architecture.md says how its rooms fit.

- ingest: takes records from nodes, by the token of each, and has them stored before it says so
- store: the records: tables made from the metric table, and who speaks ClickHouse's protocol over HTTP
- web: pages and their JSON, each for those who may see it

No room of a node imports it. Of theirs it imports the shared words (model, common) and how jobs are compared
(analysis). It needs Python 3.10 and the extra `hub`, which is in no node's bundle.
"""
