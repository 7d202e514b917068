"""`joblens-hub rules test FILE`: what rules would have done in the last month, before they are switched on."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.access_command import folder_of_ours
from condor_joblens.hub.own_store import own_store
from condor_joblens.hub.rules.settings import read_file
from condor_joblens.hub.rules.trial import DAYS, OF_EVENTS, REPLAYED, would_have_fired
from condor_joblens.hub.store.schema import DAYS as EVENT_DAYS


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub rules", description="Rules, tried on what was.")
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    test = words.add_parser("test", help="what would have fired; nobody is told")
    test.add_argument("file", type=Path, help="of rules")
    test.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path("/var/lib/joblens-hub"), help="the hub's (%(default)s)"
    )
    test.add_argument("--days", metavar="N", type=int, default=DAYS, help="how far back, 1 to 365 (%(default)s)")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        return _test(options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def _test(options: argparse.Namespace) -> int:
    settings = read_file(options.file)
    if not 1 <= options.days <= 365:
        raise JobLensError("days are 1 to 365")
    with own_store(folder_of_ours(options.folder)) as store:
        found = would_have_fired(settings, store, options.days)
    for one in found:
        hours = round((one.seen - one.begun) / 3600) + 1
        begun = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(one.begun))
        print(f"{begun}\t{hours} h\t{one.rule}\t{printable(one.alarm.sentence, 300)}")
    counts = Counter(one.rule for one in found)
    for rule in settings.rules:
        if rule.when in REPLAYED:
            told = [*rule.mail, *([rule.webhook] if rule.webhook else []), *(["red light"] if rule.red else [])]
            days = min(options.days, EVENT_DAYS) if rule.when in OF_EVENTS else options.days
            span = f"{days} day" if days == 1 else f"{days} days"
            print(f"{rule.name}: {counts[rule.name]} in {span} ({', '.join(told) or 'nobody is told'})")
        else:
            print(f"{rule.name}: not tried, for what `{rule.when}` needs is not kept")
    print("Looked at once an hour, and now; the hub looks once a minute, and so may find more.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
