"""Failing jobs by their cause, against what is usual; and of each wave of failures: is it the site, or the task?

Clusters count, not jobs: one submission of a thousand jobs that all fail says as much about a node as one job. So a
node or server is blamed only if jobs of several clusters fail there, and these jobs' clusters do not fail elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from condor_joblens.analysis.causes import general

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

    cause: str  # in words, as its node says; empty: none are known
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
    search: str  # words by which a page of jobs finds them


def kind(words: str) -> str:
    """A cause without what names programs, paths or servers: for who may not see these."""
    if words.startswith("out of memory"):
        return "out of memory"
    for pattern in (_EXIT, _SIGNAL):
        found = pattern.search(words)
        if found:
            return found[0]
    return "another cause"


def waves(
    failures: Iterable[Failure], before: Mapping[str, int], ended: Ended, names_words: bool, names_owners: bool
) -> list[Wave]:
    """By cause, that of most failures first.

    before: failures by their words, in the USUAL_HOURS before the window. names_words, names_owners: whether the viewer
    may read them.
    """
    name = general if names_words else kind
    together: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        together[name(failure.words)].append(failure)
    usual: Counter[str] = Counter()
    for words, count in before.items():
        usual[name(words)] += count
    found = [
        _wave(cause, members, usual[cause] / USUAL_HOURS, ended, names_words, names_owners)
        for cause, members in together.items()
    ]
    return sorted(found, key=lambda wave: (-wave.is_wave, -wave.count, wave.cause))


def _wave(
    cause: str, members: Sequence[Failure], usual: float, ended: Ended, names_words: bool, names_owners: bool
) -> Wave:
    clusters = Counter(one.cluster for one in members)
    nodes = Counter(one.node for one in members)
    owners = Counter(one.owner for one in members)
    is_wave = len(members) >= max(FEWEST, 2 * usual)
    verdict, why, search = "", "", ""
    if is_wave:
        verdict, why, search = _judged(members, clusters, nodes, owners, ended, names_words, names_owners)
    return Wave(
        cause, len(members), usual, len(clusters), len(nodes), len(owners), is_wave, verdict, why, members[0], search
    )


def _judged(
    members: Sequence[Failure],
    clusters: Counter[str],
    nodes: Counter[str],
    owners: Counter[str],
    ended: Ended,
    names_words: bool,
    names_owners: bool,
) -> tuple[str, str, str]:
    """site, task or unclear; the sentence; words to search for."""
    cluster, of_cluster = clusters.most_common(1)[0]
    number = cluster.rpartition("#")[2]
    whose = f" of {members[0].owner}" if names_owners and len(owners) == 1 and members[0].owner else ""
    if of_cluster >= MOST_OF * len(members) and len(clusters) < SEVERAL:
        on = {one.node for one in members if one.cluster == cluster}
        if len(on) < SEVERAL:
            where = f"on {_counted(len(on), 'node')} alone"
            return "unclear", f"{of_cluster} jobs of cluster {number}{whose} failed, {where}: either may be it.", number
        others = sum(ended.by_node.get(node, 0) for node in on) - sum(one.node in on for one in members)
        beside = f", where {others} other jobs ended in that hour" if others > 0 else ""
        return "task", f"{of_cluster} jobs of cluster {number}{whose} failed on {len(on)} nodes{beside}.", number
    if len(clusters) >= SEVERAL:
        blamed = _node(members, ended) or (_server(members, ended) if names_words else None)
        if blamed:
            return "site", *blamed
        all_of_them = sum(ended.by_cluster.get(cluster, 0) for cluster in clusters)
        if len(owners) >= SEVERAL and len(members) > FEW_OF * all_of_them:
            said = f"Jobs of {len(owners)} people failed on {_counted(len(nodes), 'node')}"
            return "site", f"{said}, {len(members)} of {all_of_them}; no node or file server stands out.", ""
    if len(owners) == 1:
        said = f"{_counted(len(clusters), 'cluster')}{whose} failed on {_counted(len(nodes), 'node')}"
        return "task", f"{said}, and nobody else's for that cause.", members[0].owner if names_owners else ""
    said = f"Jobs of {len(owners)} people failed on {_counted(len(nodes), 'node')}"
    return "unclear", f"{said}; most jobs of their clusters did not, or it is too few clusters to tell.", ""


def _node(members: Sequence[Failure], ended: Ended) -> tuple[str, str] | None:
    """The node on which most failed, if these clusters do well elsewhere: a sentence, and words to search for."""
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
    return f"{said}; elsewhere {elsewhere} of at least {others} jobs of these clusters did.", node


def _server(members: Sequence[Failure], ended: Ended) -> tuple[str, str] | None:
    """The same of a file server, if most who asked it failed."""
    servers = Counter(name for one in members for name in set(one.servers))
    for server, failed in servers.most_common(3):
        clusters = {one.cluster for one in members if server in one.servers}
        asked = max(failed, ended.by_server.get(server, 0))
        if failed >= MOST_OF * len(members) and len(clusters) >= SEVERAL and failed > (1 - FEW_OF) * asked:
            said = f"{failed} of {asked} jobs that asked the file server {server} failed"
            return f"{said}, of {len(clusters)} clusters on {len({one.node for one in members})} nodes.", ""
    return None


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
