"""Records to OpenSearch or Elasticsearch: an index a kind and day, with a strict mapping.

There is an index for each day of the records' own time, and no data stream. An `_id` is unique within an index alone,
and a record that is sent again after midnight must meet itself.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opensearchpy import OpenSearch, Urllib3HttpConnection
from opensearchpy import exceptions as errors

from condor_joblens.common import knob_values
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import (
    DeliveryResult,
    Diagnosis,
    Record,
    RecordKind,
    Sink,
    SinkContext,
    SinkKnob,
    bounded_http,
    macro_of,
    not_now,
    parsers,
    secret,
    server_diagnosis,
    tls,
)
from condor_joblens.sinks.deadletters import DeadLetters
from condor_joblens.sinks.opensearch_mapping import mapping, without_servers

_BULK_BYTES = 4 << 20
_DELIVERED = (200, 201, 409)  # 409: it is there already
_REFUSED = (400, 413)  # what is wrong with the document itself; all else may pass
_SECONDS = 10.0
_WHOLE_SECONDS = 30.0  # for a request, from the connection to the end of the answer
_MISREAD = (ValueError, RecursionError, AttributeError, TypeError, LookupError)
"""What the library raises for JSON that is none, too deep, or not of the form that it expects of an error."""

_MOST_HALVED = 6  # times, until the answers about parts of a bulk are short enough
_NAMES = {
    RecordKind.SAMPLE: "samples",
    RecordKind.EVENT: "events",
    RecordKind.JOB: "jobs",
    RecordKind.HEALTH: "health",
    RecordKind.PROFILE: "profiles",
}


class _BoundedConnection(Urllib3HttpConnection):
    """The library's, but no answer takes more than it may."""

    def _create_urllib3_pool(self) -> None:
        super()._create_urllib3_pool()
        self.pool = bounded_http.bind(self.pool, _WHOLE_SECONDS)


class OpenSearchSink(Sink):
    """Delivered is what has its place in an index; the records' ids are the documents'."""

    name = "opensearch"
    knobs = (
        SinkKnob("URL", None, parsers.urls, "URL, ...", "some nodes of the cluster: https://search.example.org:9200"),
        SinkKnob("USER", "", parsers.text, "name", "whom to log in as"),
        SinkKnob("PASSWORD_FILE", "", secret.path, "file", "where that user's password stands"),
        *tls.client_knobs("nodes"),
        SinkKnob("INDEX", "joblens", parsers.index, "prefix", "indices are PREFIX-samples-2026.01.31, and so on"),
        SinkKnob("SHARDS", "1", parsers.integer(1, 1024), "shards", "of each index"),
        SinkKnob(
            "DEAD_LETTERS",
            "/var/lib/joblens/opensearch.refused",
            parsers.file,
            "file",
            "where documents that were refused are kept, each with the reason; empty: nowhere",
        ),
        SinkKnob(
            "PROFILES",
            "false",
            knob_values.boolean,
            "true or false",
            "whether profiles of jobs at level profile go there, with names of their functions and files",
        ),
    )

    @classmethod
    def wanted(cls, settings: Mapping[str, Any]) -> frozenset[RecordKind]:
        """Profiles too, if PROFILES says so."""
        return cls.takes | ({RecordKind.PROFILE} if settings["profiles"] else set())

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._client: OpenSearch | None = None
        self._letters = DeadLetters(settings["dead_letters"], context.log)
        self._kinds = self.wanted(settings)

    def start(self) -> None:
        """Tells the cluster what our indices look like."""
        client = self._connect()
        try:
            for kind in self._kinds:
                self._prepare(client, kind)
        except errors.OpenSearchException as error:
            client.close()
            raise JobLensError(self._why(error)) from None
        self._client = client

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """In bulks of some megabytes."""
        retry: list[int] = []
        refused: dict[int, str] = {}
        reason, after, begin = "", 0.0, 0
        while begin < len(batch) and not reason:
            end, size = begin, 0
            while end < len(batch) and (end == begin or size + len(batch[end].json) <= _BULK_BYTES):
                size += len(batch[end].json)
                end += 1
            outcome = self._bulk(batch[begin:end])
            retry += [begin + position for position in outcome.retry]
            refused.update((begin + position, why) for position, why in outcome.refused.items())
            reason, after, begin = outcome.reason, outcome.after, end
        self._letters.add((batch[position], why) for position, why in refused.items())
        return DeliveryResult([*retry, *range(begin, len(batch))], refused, reason, after)

    def _bulk(self, batch: Sequence[Record], halved: int = 0) -> DeliveryResult:
        lines = []
        for record in batch:
            lines += [self._action(record), record.json]
        try:
            client = self._client = self._client or self._connect()
            answer = client.bulk(
                body=b"\n".join([*lines, b""]), params={"filter_path": "errors,items.*.status,items.*.error"}
            )
        except JobLensError as error:
            return not_now(batch, str(error))
        except errors.TransportError as error:
            is_too_long = isinstance(error.info, bounded_http.AnswerTooLong) and halved < _MOST_HALVED
            if (error.status_code == 413 or is_too_long) and len(batch) > 1:
                half = len(batch) // 2
                return _joined(self._bulk(batch[:half], halved + 1), self._bulk(batch[half:], halved + 1), batch)
            if error.status_code == 413:
                return DeliveryResult(refused={0: "the node takes no document of that size"})
            if not isinstance(error.status_code, int):
                self.close(0)  # the next connection reads the certificates anew: they may be renewed in place
            return not_now(batch, self._why(error), 1.0 if error.status_code in (429, 503) else 0.0)
        except (errors.OpenSearchException, *_MISREAD):
            answer = None
        found = _judged(answer, len(batch))
        if found is None:
            return not_now(batch, f"{self._where()} does not answer as OpenSearch does: is it a node's port?")
        return found

    def _action(self, record: Record) -> bytes:
        day = time.strftime("%Y.%m.%d", time.gmtime(record.time))
        index = f"{self.settings['index']}-{_NAMES[record.kind]}-{day}"
        return json.dumps({"create": {"_index": index, "_id": record.id}}, separators=(",", ":")).encode()

    def close(self, seconds: float) -> None:
        """Ends the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def check(self) -> Iterator[Diagnosis]:
        """Files, then the way to each node, then whether it lets us look and write."""
        try:
            client = self._connect()
        except JobLensError as error:
            yield Diagnosis.of(error)
            return
        try:
            for url in self.settings["url"]:
                self._walk(url)
                yield Diagnosis(True, f"{url} answers")
            about = client.info()
            version = printable(str(about.get("version", {}).get("number", "an unknown version")))
            yield Diagnosis(True, f"the cluster {printable(str(about.get('cluster_name')))} runs {version}")
            known = all(client.indices.exists_index_template(name=self._template(kind)) for kind in self._kinds)
            yield Diagnosis(True, "our index templates are there" if known else "our index templates will be made")
        except JobLensError as error:
            yield Diagnosis.of(error)
        except (errors.OpenSearchException, AttributeError) as error:  # the latter from what is no OpenSearch
            yield Diagnosis.of(JobLensError(self._why(error)))
        finally:
            client.close()

    # --- the cluster

    def _tls(self) -> ssl.SSLContext | None:
        encrypted = any(url.startswith("https:") for url in self.settings["url"])
        return tls.client(self.name, self.settings, "" if encrypted else "URL = http://...")

    def _walk(self, url: str) -> None:
        server_diagnosis.walk(self.name, url, self._tls() if url.startswith("https:") else None, "OpenSearch")

    def _connect(self) -> OpenSearch:
        given = self.settings
        login = (given["user"], secret.read(given["password_file"])) if given["password_file"] else None
        return OpenSearch(
            list(given["url"]),
            connection_class=_BoundedConnection,
            http_auth=login,
            ssl_context=self._tls(),
            timeout=_SECONDS,
            max_retries=0,  # the exporter tries again, and counts it
            retry_on_timeout=False,
            http_compress=False,
        )

    def _template(self, kind: RecordKind) -> str:
        return f"{self.settings['index']}-{_NAMES[kind]}"

    def _prepare(self, client: OpenSearch, kind: RecordKind) -> None:
        name = self._template(kind)
        template = {
            "index_patterns": [f"{name}-*"],
            "template": {
                "settings": {
                    "number_of_shards": self.settings["shards"],
                    "auto_expand_replicas": "0-1",
                    "codec": "best_compression",
                },
                "mappings": mapping(kind),
            },
            "_meta": {"made_by": "condor_joblens"},
        }
        client.indices.put_index_template(name=name, body=template)
        # today's index may be of a version that knew fewer fields
        pattern, some = f"{name}-*", {"allow_no_indices": "true"}
        try:
            client.indices.put_mapping(index=pattern, body=mapping(kind), params=some)
        except errors.RequestError:  # or of one that knew servers and did not let them be searched: that stays
            client.indices.put_mapping(index=pattern, body=without_servers(mapping(kind)), params=some)

    def _where(self) -> str:
        return f"{macro_of(self.name, 'URL')}: {', '.join(self.settings['url'])}"

    def _why(self, error: Exception) -> str:
        status = getattr(error, "status_code", None)
        user = printable(self.settings["user"]) or "nobody"
        macro, where = macro_of(self.name), self._where()
        if status == 401:
            return f"{where} refuses the user {user} or his password: correct {macro}USER and {macro}PASSWORD_FILE"
        if status == 403:
            return f"{where} does not let the user {user} do that ({_said(error)}): allow it, or set {macro}USER"
        if status in (429, 503):
            return f"{where} has too much to do ({status}, {_said(error)}): look at its log"
        if not isinstance(status, int):
            try:
                for url in self.settings["url"]:
                    self._walk(url)
            except JobLensError as reason:
                return str(reason)
        return f"{where} does not answer as OpenSearch does ({_said(error)}): is it OpenSearch's port?"


def _said(error: Exception) -> str:
    return printable(str(getattr(error, "error", "") or error), 200)


def _judged(answer: Any, count: int) -> DeliveryResult | None:
    """What the answer to a bulk of `count` documents says of each; None if it says nothing of the kind."""
    if not isinstance(answer, dict) or "errors" not in answer:
        return None
    if not answer["errors"]:
        return DeliveryResult()
    items = _items(answer.get("items"))
    if items is None or len(items) != count:
        return None
    retry: list[int] = []
    refused: dict[int, str] = {}
    reason = ""
    for position, done in enumerate(items):
        status = done.get("status")
        if status in _DELIVERED:
            continue
        error = done.get("error")
        error = error if isinstance(error, dict) else {}
        said = printable(f"{error.get('type')}: {error.get('reason')}", 500)
        if status in _REFUSED:
            refused[position] = said
        else:
            retry.append(position)
            reason = reason or f"a document is not taken for now ({printable(str(status))}): {said}"
    return DeliveryResult(retry, refused, reason, 1.0 if retry else 0.0)


def _items(found: Any) -> list[dict[str, Any]] | None:
    """[{"create": {"status": 201}}, ...] as [{"status": 201}, ...]; None if it is not of this form."""
    if not isinstance(found, list) or not all(isinstance(item, dict) and len(item) == 1 for item in found):
        return None
    items = [next(iter(item.values())) for item in found]
    return items if all(isinstance(item, dict) for item in items) else None


def _joined(first: DeliveryResult, second: DeliveryResult, batch: Sequence[Record]) -> DeliveryResult:
    half = len(batch) // 2
    return DeliveryResult(
        [*first.retry, *(half + position for position in second.retry)],
        {**first.refused, **{half + position: why for position, why in second.refused.items()}},
        first.reason or second.reason,
        max(first.after, second.after),
    )
