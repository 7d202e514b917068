"""joblens-eventlog: follows the schedd's event log on an access point, and tells the hub what becomes of jobs.

- log_files: the log and what it was rotated to, read on from a place in them
- job_events: the log's text -> one record for each step of a job's life
- cursor: the place to which the hub has all, in a file
- reader: reads, sends, and then moves the cursor on
- __main__: the process, as condor_master starts it

The log has all that it needs. It asks the schedd nothing, and is no daemon of joblensd's.
"""
