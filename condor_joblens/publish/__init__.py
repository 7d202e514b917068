"""Rows -> ClassAds: the job's own update ad, and the slot ads of the startd's cron job."""
