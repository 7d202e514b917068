"""The passing tables in the store's memory: which there are, and how one goes."""

from __future__ import annotations

from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.schema import SNAPSHOTS


def snapshots(store: Store) -> list[str]:
    """Their names. Raises StoreGone, StoreRefused."""
    return sorted(name for name in store.tables() if name.startswith(SNAPSHOTS))


def drop(store: Store, name: str) -> None:
    """Its memory is free when this returns; one that is gone is none. Raises StoreGone, StoreRefused."""
    store.change(f"DROP TABLE IF EXISTS {name} SYNC")
