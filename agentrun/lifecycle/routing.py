"""Which kind of input a text is, by the state of the session's slot: one table, for `send` and for the docs.

The model never decides this, and nothing is ever turned silently into something else.
"""

from __future__ import annotations

from agentrun.errors import Conflict, ImpossibleMode, SlotTaken
from agentrun.named import StrEnum
from agentrun.records.message import ANSWER, COMPACT, FOLLOW_UP, PROMPT, STEER
from agentrun.records.views import RunView
from agentrun.states import OPEN, OperationStatus, RunStatus

S = RunStatus


class IfBusy(StrEnum):
    """What a prompt does when the slot is taken."""

    REJECT = "reject"
    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"


class Standing(StrEnum):
    """When the turn of an accepted prompt comes."""

    NOW = "it takes the slot"
    LAST = "it waits behind all others"
    NEXT = "it comes next, and the run that holds the slot is stopped"


MODES = (PROMPT, STEER, FOLLOW_UP, ANSWER)

# What a plain `send` becomes when the active run has that status; statuses that are not here refuse it.
CHOSEN: dict[RunStatus, str] = {
    S.QUEUED: FOLLOW_UP,
    S.RUNNING: FOLLOW_UP,
    S.COMPACTING: FOLLOW_UP,
    S.WAITING_INPUT: ANSWER,
}

# The statuses in which each kind can be asked for by name. A prompt needs a free slot.
POSSIBLE: dict[str, frozenset[RunStatus]] = {
    STEER: frozenset({S.QUEUED, S.RUNNING, S.COMPACTING, S.WAITING_INPUT}),
    FOLLOW_UP: frozenset({S.QUEUED, S.RUNNING, S.COMPACTING, S.WAITING_INPUT}),
    ANSWER: frozenset({S.WAITING_INPUT}),
}

# When the turn of a prompt comes that waits for the slot, whatever the run that holds it does. Other policies refuse it
# or make it something else. A run that is cancelling is stopped already; one that is queued is cancelled at once; one
# whose executor is gone is wound down by whoever interrupts it.
WAITING: dict[IfBusy, Standing] = {
    IfBusy.QUEUE: Standing.LAST,
    IfBusy.INTERRUPT: Standing.NEXT,
}


def route(active: RunView | None, mode: str | None, if_busy: IfBusy | None) -> str:
    """The kind of an input, given the run that holds the slot (None: it is free) and what the caller asked for.

    Raises SlotTaken or ImpossibleMode, each saying what to type instead.
    """
    if active is None:
        if mode in (None, PROMPT, COMPACT):
            return mode or PROMPT
        raise ImpossibleMode(
            f"no run is active, so there is nothing to {_VERBS[str(mode)]}", hint="send it as a prompt"
        )
    if if_busy in WAITING and mode in (None, PROMPT):
        return PROMPT
    if if_busy is IfBusy.STEER and mode in (None, PROMPT):
        mode = STEER
    if if_busy is not None or mode in (PROMPT, COMPACT):
        if mode != STEER:
            raise _taken(active)
    elif mode is None:
        mode = _chosen(active)
    if active.status not in POSSIBLE[mode]:
        raise _impossible(active, mode)
    if mode == ANSWER and _waits_for_approval(active):
        raise _needs_approval(active)
    return mode


def standing(active: RunView | None, if_busy: IfBusy | None) -> Standing:
    """When the turn of a prompt comes that `route` has let through."""
    return Standing.NOW if active is None or if_busy is None else WAITING[if_busy]


def _chosen(active: RunView) -> str:
    mode = CHOSEN.get(active.status)
    if mode is None:
        raise _taken(active)
    return mode


def _waits_for_approval(active: RunView) -> bool:
    return (active.run.waiting_for or {}).get("kind") == "approval"


def _taken(active: RunView) -> Conflict:
    return _refused(SlotTaken, active, f"is active ({active.words})")


def _impossible(active: RunView, mode: str) -> Conflict:
    allowed = " or ".join(status for status in RunStatus if status in POSSIBLE[mode])
    return _refused(ImpossibleMode, active, f"is {active.words}; {_A[mode]} needs a run that is {allowed}")


def _needs_approval(active: RunView) -> Conflict:
    return _refused(ImpossibleMode, active, "waits for an approval, which a text cannot give")


def _refused(kind: type[Conflict], active: RunView, why: str) -> Conflict:
    name = f"{active.run.session_id}/{active.run.run_id}"
    return kind(
        f"{name} {why}",
        hint=_what_next(active, name),
        session_id=active.run.session_id,
        run_id=active.run.run_id,
    )


def _what_next(active: RunView, name: str) -> str:
    if active.executor == "lost":
        return _what_next_of_lost(active, name)
    if active.status is S.WAITING_INPUT and _waits_for_approval(active):
        return f"agentrun approve {name}, or agentrun deny {name}"
    return _WHAT_NEXT.get(active.status, "watch it with: agentrun show -f {name}").format(name=name)


def _what_next_of_lost(active: RunView, name: str) -> str:
    # Waiting for one that is cancelling would never end, for nobody winds it down.
    if active.status is S.CANCELLING:
        return f"its executor is gone; wind it down with: agentrun cancel {name}"
    if active.run.unread_events:
        return f"events of it are damaged: agentrun check {active.run.session_id}\nend it: agentrun cancel {name}"
    unknown = [each.operation_id for each in active.run.unresolved_operations if each.status is OperationStatus.UNKNOWN]
    take_up = f"take it up: agentrun resume {name}"
    if unknown:
        # Nothing else helps as long as that is open.
        take_up = f"say how {unknown[0]} ended: agentrun reconcile {name} {unknown[0]} --as succeeded|failed|cancelled"
        take_up += f"\nthen take it up: agentrun resume {name}"
    return f"its executor is gone; {take_up}\nor end it: agentrun cancel {name}"


_VERBS = {STEER: "steer", FOLLOW_UP: "follow up", ANSWER: "answer"}
_A = {STEER: "a steer", FOLLOW_UP: "a follow-up", ANSWER: "an answer"}
_WHAT_NEXT = {
    S.CANCELLING: "wait until it is over: agentrun show -f {name}",
    S.WAITING_INPUT: "answer it with: agentrun send {name} TEXT",
}
assert not [status for status in CHOSEN if status not in OPEN]
