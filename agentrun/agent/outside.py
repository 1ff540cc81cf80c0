"""What is asked of the world outside about an action that nobody here can vouch for.

Whoever winds a run down, picks one up, or retries a write asks through this, and never knows how it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from agentrun.records.findings import CancelAnswer, Probed
from agentrun.records.operation import Operation

# Seconds that all questions together may hold up an end; they are asked side by side.
ALTOGETHER_SECONDS = 60.0
# Seconds that they get once the user wants it ended at once: a command that is well has answered by then, and one that
# hangs must not keep anybody.
FORCED_SECONDS = 1.0
# Seconds between two looks at a job that was asked to stop, doubled from the first to the second.
_QUICKEST, _SLOWEST = 0.1, 1.0


class Outside(Protocol):
    """The systems outside that a run's actions reach. No method raises, and each is bounded in time."""

    def can_probe(self, operation: Operation) -> bool:
        """Whether somebody knows how to find out what became of it."""

    def can_cancel(self, operation: Operation) -> bool:
        """Whether somebody knows how to stop it."""

    def patience(self, operation: Operation) -> float:
        """Seconds that what was asked to stop is given until it has."""

    def longest(self, operation: Operation) -> float:
        """Seconds that one question about it may hold up an end."""

    async def probe(self, operation: Operation, within: float | None = None) -> Probed:
        """What became of it. Asked only when nothing of ours works on it any more: else it may still happen.

        `within` are seconds, if less than is usual.
        """

    async def cancel(self, operation: Operation, within: float | None = None) -> CancelAnswer:
        """Asks for it to be stopped; `within` as above."""


class Unreachable:
    """Nobody can be asked, for `reason` (the configuration is gone)."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def can_probe(self, operation: Operation) -> bool:
        """Nobody does."""
        return False

    def can_cancel(self, operation: Operation) -> bool:
        """Nobody does."""
        return False

    def patience(self, operation: Operation) -> float:
        """None is needed."""
        return 0.0

    def longest(self, operation: Operation) -> float:
        """No time at all."""
        return 0.0

    async def probe(self, operation: Operation, within: float | None = None) -> Probed:
        """Unknown."""
        return Probed("unknown", evidence=self._reason)

    async def cancel(self, operation: Operation, within: float | None = None) -> CancelAnswer:
        """Not asked."""
        return CancelAnswer("unknown", evidence=self._reason, is_asked=False)


async def ask_to_stop(
    operations: Sequence[Operation], outside: Outside, is_forced: Callable[[], bool]
) -> dict[str, CancelAnswer]:
    """Asks for each to be stopped, side by side, and finds out what became of it; by operation id.

    Nothing of them may be alive here any more: what still works could do what its probe has just denied. Who does not
    answer in time is `unknown`; once it `is_forced`, that time is short.
    """
    answers: dict[str, CancelAnswer] = {}

    async def ask(operation: Operation) -> None:
        answers[operation.operation_id] = await _stop(operation, outside)

    async def hurry(whole: anyio.CancelScope) -> None:
        while not is_forced():  # noqa: ASYNC110  it is asked of a file, or of an executor, which tell nobody
            await anyio.sleep(_QUICKEST)
        await anyio.sleep(FORCED_SECONDS)
        whole.cancel()

    with anyio.move_on_after(ALTOGETHER_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(hurry, group.cancel_scope)
            async with anyio.create_task_group() as asking:
                for operation in operations:
                    asking.start_soon(ask, operation)
            group.cancel_scope.cancel()
    why = "the user wanted an end at once" if is_forced() else f"it took longer than {ALTOGETHER_SECONDS:g} s"
    silence = CancelAnswer("unknown", evidence=f"nobody had answered: {why}", is_asked=False)
    return {each.operation_id: answers.get(each.operation_id, silence) for each in operations}


async def _stop(operation: Operation, outside: Outside) -> CancelAnswer:
    limit = outside.longest(operation)
    asked = await outside.cancel(operation, limit) if outside.can_cancel(operation) else None
    if asked is not None and (asked.is_certain or not outside.can_probe(operation)):
        # Still running is not known how it ends.
        return asked._replace(status="unknown") if asked.status == "running" else asked
    patience = outside.patience(operation) if asked is not None and asked.is_asked else 0.0
    return _as_probed(asked, await _probe(operation, outside, patience, limit))


async def _probe(operation: Operation, outside: Outside, patience: float, limit: float) -> Probed:
    """What the probe says; of a job that was asked to stop, after it has had `patience` seconds to do so."""
    until, pause = anyio.current_time() + patience, _QUICKEST
    while True:
        probed = await outside.probe(operation, limit)
        if probed.status != "running" or anyio.current_time() + pause > until:
            return probed
        await anyio.sleep(pause)
        pause = min(2 * pause, _SLOWEST)


def _as_probed(asked: CancelAnswer | None, probed: Probed) -> CancelAnswer:
    evidence = probed.evidence if asked is None else f"{asked.evidence}; {probed.evidence}"
    if not probed.is_certain:
        return CancelAnswer("unknown", evidence=evidence)
    was_stopped = probed.status == "failed" and asked is not None and asked.is_asked
    return CancelAnswer("cancelled" if was_stopped else probed.status, probed.result, evidence)
