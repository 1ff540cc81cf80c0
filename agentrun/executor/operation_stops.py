"""Cancelling one operation of a run that goes on: who asked for it, and what it ends here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.states import EventType


class OperationStops:
    """The operations that somebody wants cancelled, from the run's events, and those that are under way here."""

    def __init__(self) -> None:
        self._asked: dict[str, Doc] = {}
        self._forced: set[str] = set()
        self._under_way: dict[str, anyio.CancelScope] = {}

    def take(self, event: Event) -> None:
        """Takes an event of the run up; an operation that is to stop is cancelled at its next step."""
        if event.type != EventType.OPERATION_CANCEL_REQUESTED:
            return
        operation_id = str(event.payload.get("operationId"))
        self._asked.setdefault(operation_id, event.payload)
        if event.payload.get("force") is True:
            self._forced.add(operation_id)
        if operation_id in self._under_way:
            self._under_way[operation_id].cancel()

    def words(self, operation_id: str) -> str | None:
        """Who cancelled the operation and why, as the record and the model are told; None if nobody did."""
        asked = self._asked.get(operation_id)
        if asked is None:
            return None
        actor = asked.get("actor")
        who = actor.get("user") if isinstance(actor, dict) else None
        return f"cancelled by {who or 'somebody'}: {asked.get('reason') or 'no reason given'}"

    def is_forced(self, operation_id: str) -> bool:
        """Whether it is to be ended without a grace period."""
        return operation_id in self._forced

    @contextmanager
    def scope(self, operation_id: str) -> Iterator[anyio.CancelScope]:
        """What is done inside belongs to the operation: it is cancelled when the operation is, and by itself."""
        with anyio.CancelScope() as scope:
            self._under_way[operation_id] = scope
            if operation_id in self._asked:
                scope.cancel()
            try:
                yield scope
            finally:
                del self._under_way[operation_id]
