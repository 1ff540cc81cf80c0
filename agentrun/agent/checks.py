"""Checks: commands that a draft has to pass before it is committed as the report.

A check is an operation like a tool call, registered before it starts and recorded when it ends, but no call of the
model: it hangs on the reply that it looks at. Its outcome holds for exactly the bytes that it was given, in that turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from agentrun.agent.batch import lost, record_fact
from agentrun.agent.events import ToolFinished, ToolRegistered
from agentrun.agent.protocols import Invocation, Stretch, ToolOutcome
from agentrun.agent.registering import idempotency_key
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn
from agentrun.agent.verdicts import is_verdict
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.operation import READ, Operation
from agentrun.states import OperationStatus as Status


class Check(Protocol):
    """Something that a draft has to pass."""

    @property
    def name(self) -> str:
        """What it is called in the record: the command."""

    async def run(self, draft: bytes, invocation: Invocation, on_stopped: Callable[[ToolOutcome], None]) -> ToolOutcome:
        """Looks at `draft`; succeeded = passed. Stopped as a tool is, see `agent.protocols.Tool`."""


class Standing(NamedTuple):
    """How a draft stands: the checks that have said nothing of it yet, and those that it did not pass."""

    missing: tuple[Check, ...]
    failed: tuple[Operation, ...]


def standing(turn: Turn | None, checks: Sequence[Check], draft: bytes) -> Standing:
    """How `draft`, made of the reply of `turn`, stands with `checks`."""
    said = [(check, _verdict(turn, _about(check, draft))) for check in checks]
    missing = tuple(check for check, verdict in said if verdict is None)
    failed = tuple(verdict for _, verdict in said if verdict and verdict.status is not Status.SUCCEEDED)
    return Standing(missing, failed)


async def run_checks(stretch: Stretch, checks: Sequence[Check], draft: bytes) -> None:
    """Makes the checks that are missing, one after the other, until all are made or a steer has come."""
    await _settle_left(stretch, stretch.transcript)
    for check in standing(stretch.transcript.last, checks, draft).missing:
        if not await _make(stretch, stretch.transcript, check, draft):
            return


def _about(check: Check, draft: bytes) -> Doc:
    return {"command": check.name, "sha256": hashlib.sha256(draft).hexdigest()}


def _verdict(turn: Turn | None, about: Doc) -> Operation | None:
    said = (each for each in reversed(turn.checks if turn else ()) if each.check == about)
    return next((each for each in said if is_verdict(each)), None)


async def _settle_left(stretch: Stretch, transcript: Transcript) -> None:
    """What an executor that is gone left of its checks: each is made anew, for its outcome is known to nobody."""
    for check in [check for turn in transcript.turns for check in turn.checks]:
        if check.status is Status.RUNNING:
            await record_fact(stretch, lost(check))
        elif check.status is Status.PENDING:
            error = "its executor was lost before it started"
            await record_fact(stretch, ToolFinished(check.operation_id, 0, Status.SKIPPED, error=error))


async def _make(stretch: Stretch, transcript: Transcript, check: Check, draft: bytes) -> bool:
    """Makes one check and records its outcome; False if it must not start, since the user has said something new."""
    turn = transcript.last
    assert turn is not None  # there is a reply, or there would be no draft
    operation_id = transcript.next_operation_id
    key = idempotency_key(stretch, transcript, operation_id)
    await stretch.record(
        ToolRegistered(operation_id, turn.turn_id, None, check.name, {}, READ, None, key, check=_about(check, draft))
    )
    # The user may cancel it alone; the run goes on then, and the draft has not passed.
    with stretch.scope_of(operation_id):
        refusal = await _started(stretch, operation_id, check)
        if refusal is None:
            invocation = Invocation(operation_id, {}, key, 1, is_forced=lambda: stretch.is_forced(operation_id))
            await _record(stretch, operation_id, await _outcome(stretch, invocation, check, draft))
        else:
            await record_fact(stretch, ToolFinished(operation_id, 0, Status.SKIPPED, error=refusal))
    return not stretch.is_steered()


async def _started(stretch: Stretch, operation_id: str, check: Check) -> str | None:
    import anyio

    try:
        return await stretch.start_call(operation_id, None, check.name, 1)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for made in (made for turn in stretch.transcript.turns for made in turn.checks):
                if made.operation_id == operation_id and made.status is Status.RUNNING:
                    # Its start was stored, and then the stop came.
                    error = stretch.cancelled_why(operation_id) or "it was stopped before it was sent off"
                    await _record(stretch, operation_id, ToolOutcome(Status.CANCELLED, error=error))
        raise


async def _outcome(stretch: Stretch, invocation: Invocation, check: Check, draft: bytes) -> ToolOutcome:
    known: list[ToolOutcome] = []
    try:
        return await check.run(draft, invocation, known.append)
    # A bug of whoever makes checks is no verdict, but the draft has not passed either.
    except Exception as error:  # noqa: BLE001
        return ToolOutcome(Status.FAILED, error=f"the check could not be made: {type(error).__name__}: {error}")
    except BaseException:
        stopped = known[0] if known else ToolOutcome(Status.CANCELLED)
        why = stopped.error or stretch.cancelled_why(invocation.operation_id)
        await _record(stretch, invocation.operation_id, stopped._replace(error=why))
        raise


async def _record(stretch: Stretch, operation_id: str, outcome: ToolOutcome) -> None:
    finished = ToolFinished(operation_id, 1, outcome.status, outcome.output, error=outcome.error, note=outcome.note)
    try:
        await record_fact(stretch, finished)
    finally:
        if not isinstance(outcome.output, bytes):
            outcome.output.close()
