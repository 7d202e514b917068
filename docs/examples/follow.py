"""What happens on this machine, as it happens; root may run it."""

from condor_joblens.model.events import EventKind
from condor_joblens.shm import events, rows

print(len(rows()), "jobs run here")
for batch, missed, position in events(seconds=60):
    for event in batch:
        print(position.sequence, EventKind(event["kind"]).name, event["pid"], event["text"].decode())
    if missed:
        print("overwritten before they could be read:", missed)
