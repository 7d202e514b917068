"""The page of one artifact: a profile as a flame graph, a hang report or a trace as text. As far as its job's words go.

A picture is a document of its own: its script is known by its digest, and it runs apart from all pages (sandbox).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict
from typing import Any

from django.http import Http404, HttpResponse

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.artifacts import Kept
from condor_joblens.hub.web.addresses import job_url
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.draw import PICTURES, drawn
from condor_joblens.hub.web.health import size, span
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.views import View, artifacts_of, title_of, why_not
from condor_joblens.profiles.flame_graph import script_text

_DIGEST = base64.b64encode(hashlib.sha256(script_text().encode()).digest()).decode()

PICTURE_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'; sandbox allow-scripts; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""What is drawn may do nothing but zoom and search within itself: no page's cookie, no request, no other window."""


def _find(reader: Reader, asked: tuple[str, int]) -> dict[str, Any] | None:
    """None: there is no such thing, or it is not his to see; nobody learns which. Raises JobLensError."""
    run, number = asked
    job = reader.job(run)
    kept = next((one for one in artifacts_of(reader, job) if one.id == number), None) if job else None
    if kept is None or job is None:
        return None
    found = {"job": {"Run": run, "JobId": job["JobId"]}, "artifact": asdict(kept), "said": "", "text": None}
    try:
        said, shown = _drawn(kept, job["JobId"])
    except JobLensError as error:
        return {**found, "said": f"It can't be shown: {error}."}
    found["said"] = said
    return found if kept.kind in PICTURES else {**found, "text": shown.decode("utf-8", "replace")}


def _drawn(kept: Kept, job: str) -> tuple[str, bytes]:
    """For all who may see it. Raises JobLensError."""
    artifacts = desk().artifacts
    assert artifacts is not None
    return desk().shared.get(("drawn", kept.id), lambda: drawn(kept.kind, artifacts.content(kept.id), job, kept.node))


def _dress(asked: tuple[str, int], found: dict[str, Any]) -> dict[str, Any]:
    kept = found["artifact"]
    url = f"{job_url(asked[0])}/artifact/{asked[1]}"
    is_picture = kept["kind"] in PICTURES and not found["said"].startswith("It can't be shown")
    return {
        **found,
        "title": title_of(kept["kind"]),
        "job_url": job_url(asked[0]),
        "picture": f"{url}.svg" if is_picture else "",
        "json": f"{url}.json",
        "when": span(kept["begun"], kept["ended"]),
        "size": size(kept["length"]),
    }


ARTIFACT = View("artifact", lambda asked, run, number: (run, int(number)), _find, _dress)


def picture(request: Any, run: str, number: str) -> HttpResponse:
    """The SVG file."""
    try:
        found = ARTIFACT.found(request.viewer, (run, int(number)))
        if found is None or found["text"] is not None:
            raise Http404
        _, shown = _drawn(Kept(**found["artifact"]), found["job"]["JobId"])
    except JobLensError as error:
        why, status = why_not(error)
        return HttpResponse(why, status=status, content_type="text/plain; charset=utf-8")
    answer = HttpResponse(shown, content_type="image/svg+xml; charset=utf-8")
    answer["Content-Security-Policy"] = PICTURE_POLICY
    return answer
