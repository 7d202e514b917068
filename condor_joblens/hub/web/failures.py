"""Failing jobs by their cause, against what is usual; and of each wave of failures: is it the site, or the task?

Clusters count, not jobs: one submission of a thousand jobs that all fail says as much about a node as one job. So a
node or server is blamed only if jobs of several clusters fail there, and these jobs' clusters do not fail elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WINDOW = 3600.0
"""Seconds: what failed in them is shown."""

USUAL_HOURS = 24
"""Before the window: what is usual."""

FEWEST = 5
"""Failures of one cause that make a wave, beyond twice the usual."""

SEVERAL = 3
"""Clusters that fail, before anything but their own program is blamed."""

MOST_OF = 0.8
"""A share that is called most."""

FEW_OF = 0.3
"""A share of failures elsewhere that is called few; reference: docs/hub.md, Site or task."""

_SIGNAL = re.compile(r"\bSIG[A-Z0-9]+\b")
_EXIT = re.compile(r"^exit code \d+")


@dataclass(frozen=True)
class Failure:
    """A run that died, or ended with an exit code."""

    cause: str  # in words that the viewer may read, without what differs from run to run; empty: none are known
    exit_code: int | None
    cluster: str  # schedd and cluster: ap1#12
    node: str
    owner: str
    servers: tuple[str, ...] = ()  # that it asked
    job: str = ""  # 12.7
    run: str = ""

    @property
    def words(self) -> str:
        """Why, in words."""
        if self.cause or self.exit_code is None:
            return self.cause or "no reason is known"
        return f"exit code {self.exit_code}"


@dataclass(frozen=True)
class Ended:
    """How many runs ended in the window, well or not."""

    by_node: Mapping[str, int]
    by_cluster: Mapping[str, int]  # ap1#12
    by_server: Mapping[str, int]  # that asked it


@dataclass(frozen=True)
class Wave:
    """Failures of one cause."""

    cause: str
    count: int
    usual: float  # an hour
    clusters: int
    nodes: int
    owners: int
    is_wave: bool
    verdict: str  # site, task or unclear; empty: no wave
    sentence: str
    example: Failure
    blamed: tuple[str, str] | None  # a parameter of the page of jobs, and its value: node, server, cluster or owner


def kind(words: str) -> str:
    """A cause without what names programs, paths or servers: for who may not see these."""
    if words.startswith("out of memory"):
        return "out of memory"
    for pattern in (_EXIT, _SIGNAL):
        found = pattern.search(words)
        if found:
            return found[0]
    return "another cause"


def waves(failures: Iterable[Failure], before: Mapping[str, int], ended: Ended) -> list[Wave]:
    """By cause, that of most failures first.

    failures: with what their viewer may see of each, and no more. before: by their words, in the USUAL_HOURS before.
    """
    together: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        together[failure.words].append(failure)
    found = [_wave(cause, members, before.get(cause, 0) / USUAL_HOURS, ended) for cause, members in together.items()]
    return sorted(found, key=lambda wave: (-wave.is_wave, -wave.count, wave.cause))


def _wave(cause: str, members: Sequence[Failure], usual: float, ended: Ended) -> Wave:
    clusters = Counter(one.cluster for one in members)
    nodes = Counter(one.node for one in members)
    owners = Counter(one.owner for one in members)
    is_wave = len(members) >= max(FEWEST, 2 * usual)
    verdict, why, blamed = _judged(members, clusters, nodes, owners, ended) if is_wave else ("", "", None)
    return Wave(
        cause, len(members), usual, len(clusters), len(nodes), len(owners), is_wave, verdict, why, members[0], blamed
    )


def _judged(
    members: Sequence[Failure], clusters: Counter[str], nodes: Counter[str], owners: Counter[str], ended: Ended
) -> tuple[str, str, tuple[str, str] | None]:
    """site, task or unclear; the sentence; and whose jobs are behind it, if not all."""
    cluster, of_cluster = clusters.most_common(1)[0]
    number = cluster.rpartition("#")[2]
    # an equal name at another schedd may be another person: then nobody is named
    is_one = len(owners) == 1 and len({one.cluster.rpartition("#")[0] for one in members}) == 1
    owner = members[0].owner if is_one else ""
    whose = f" of {owner}" if owner else ""
    if of_cluster >= MOST_OF * len(members) and len(clusters) < SEVERAL:
        on = {one.node for one in members if one.cluster == cluster}
        said = f"{of_cluster} jobs of cluster {number}{whose} failed"
        if len(on) < SEVERAL:
            return "unclear", f"{said}, on {_counted(len(on), 'node')} alone: either may be it.", ("cluster", cluster)
        others = sum(ended.by_node.get(node, 0) for node in on) - sum(one.node in on for one in members)
        beside = f", where {others} other jobs ended in that hour" if others > 0 else ""
        return "task", f"{said} on {len(on)} nodes{beside}.", ("cluster", cluster)
    if len(clusters) >= SEVERAL:
        blamed = _node(members, ended) or _server(members, ended)
        if blamed:
            return "site", *blamed
        all_of_them = sum(ended.by_cluster.get(cluster, 0) for cluster in clusters)
        if len(owners) >= SEVERAL and len(members) > FEW_OF * all_of_them:
            said = f"Jobs of {len(owners)} people failed on {_counted(len(nodes), 'node')}"
            return "site", f"{said}, {len(members)} of {all_of_them}; no node or file server stands out.", None
    if len(owners) == 1:
        said = f"{_counted(len(clusters), 'cluster')}{whose} failed on {_counted(len(nodes), 'node')}"
        return "task", f"{said}, and nobody else's for that cause.", ("owner", owner) if owner else None
    said = f"Jobs of {len(owners)} people failed on {_counted(len(nodes), 'node')}"
    return "unclear", f"{said}; most jobs of their clusters did not, or it is too few clusters to tell.", None


def _node(members: Sequence[Failure], ended: Ended) -> tuple[str, tuple[str, str]] | None:
    """The node on which most failed, if these clusters do well elsewhere: a sentence, and which node."""
    node, failed = Counter(one.node for one in members).most_common(1)[0]
    clusters = {one.cluster for one in members if one.node == node}
    if failed < MOST_OF * len(members) or len(clusters) < SEVERAL:
        return None
    # how many of these clusters' jobs ended on this node is not known: all that ended there, at most
    others = sum(ended.by_cluster.get(cluster, 0) for cluster in clusters) - max(failed, ended.by_node.get(node, 0))
    elsewhere = sum(one.node != node and one.cluster in clusters for one in members)
    if others <= 0 or elsewhere > FEW_OF * others:
        return None
    said = f"{failed} jobs of {len(clusters)} clusters failed on the node {node}"
    return f"{said}; elsewhere {elsewhere} of at least {others} jobs of these clusters did.", ("node", node)


def _server(members: Sequence[Failure], ended: Ended) -> tuple[str, tuple[str, str]] | None:
    """The same of a file server, if most who asked it failed."""
    servers = Counter(name for one in members for name in set(one.servers))
    for server, failed in servers.most_common(3):
        clusters = {one.cluster for one in members if server in one.servers}
        asked = max(failed, ended.by_server.get(server, 0))
        if failed >= MOST_OF * len(members) and len(clusters) >= SEVERAL and failed > (1 - FEW_OF) * asked:
            said = f"{failed} of {asked} jobs that asked the file server {server} failed"
            return f"{said}, of {len(clusters)} clusters on {len({one.node for one in members})} nodes.", (
                "server",
                server,
            )
    return None


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
