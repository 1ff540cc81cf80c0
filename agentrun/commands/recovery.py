"""Taking a run out of the hands of an executor that is gone, and what becomes of it then.

The old executor is fenced out first, what its tools left running is ended, then whoever may know is asked how each
write ended. Between these steps no lock of the session is held; the lease is, and a thread renews it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from agentrun.commands.abandoned import end_leftovers
from agentrun.commands.asking import stop_outside
from agentrun.commands.execution import check_executable, config_of, outside_of
from agentrun.commands.kinship import findings_of_children
from agentrun.commands.place import Place
from agentrun.commands.vigil import held_elsewhere
from agentrun.errors import ConfigError, SessionHeld
from agentrun.lifecycle import recovery
from agentrun.lifecycle.leaving import let_go, pass_on, with_own
from agentrun.lifecycle.recovery import Verdict
from agentrun.lifecycle.settlement import Finding
from agentrun.lifecycle.winding_down import (
    DEADLINE,
    LOST,
    WIND_DOWN_LEASE,
    how_to_end,
    how_to_go_on,
    leave_unseen,
    nothing_else_here,
    unseen,
    wind_down,
)
from agentrun.named import NamedTuple
from agentrun.records.lease import Lease
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import inbox
from agentrun.store.identity import this_actor
from agentrun.store.liveness import InHand, take_to_drive
from agentrun.store.locks import has_liveness, is_executor_alive, open_liveness
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.sight import check_sees_processes, out_of_sight
from agentrun.store.writer import Writer

TO_BE_CONTINUED = "to be continued"


class Terms(NamedTuple):
    """What the run's configuration says about going on: `lease` in seconds, further attempts by tool name."""

    lease: float
    max_attempts: int
    retries: Mapping[str, int]


class Ready(NamedTuple):
    """A run that can go on now: whoever has `liveness`, its executor's lock, is the one to drive it."""

    run: Run
    liveness: int


class Settled(NamedTuple):
    """A run that does not go on: it is over, or stays as it is for `reason`, and `hint` says what to type.

    `lacks` is why nobody could go on with it, if its configuration is what is missing.
    """

    run: Run
    reason: str
    hint: str | None = None
    lacks: ConfigError | None = None


def recover(
    place: Place, session: SessionDir, run_dir: RunDir, *, frozen: Lease | None = None
) -> Ready | Settled | None:
    """Settles what the lost executor of a run left, and decides what becomes of the run.

    `frozen` is the lease of an executor that cannot be ended from here and has been seen not to renew it: that one is
    fenced out although it has the executor's lock. None if the run is not lost any more: somebody drives it, or was
    quicker. Raises FencedOut, StorageFailed, LockHeld, and HeldBack if the frozen one has the session's lock.
    """
    stays = _why_it_stays(run_dir)
    if stays is not None:
        return stays
    try:
        terms = terms_of(place, run_dir.load())
    except ConfigError as error:
        # Nobody can be asked and nobody could go on. What is to end anyway needs neither.
        if run_dir.load().ending is None:
            return Settled(run_dir.load(), error.message, error.hint, error)
        terms = Terms(WIND_DOWN_LEASE, 1, {})
    case = _Case(place, session, run_dir, terms, frozen)
    if frozen is None and not is_to_be_taken_over(run_dir.load()):
        return case.look_again()
    try:
        return case.take_over()
    except SessionHeld as error:
        if frozen is None:
            raise
        raise held_elsewhere(run_dir, frozen) from error


def _why_it_stays(run_dir: RunDir) -> Settled | None:
    """What keeps anybody here from settling the run, if something does."""
    run = run_dir.load()
    try:
        check_sees_processes()
    except ConfigError as error:
        return Settled(run, error.message, error.hint, error)
    names = nothing_else_here(run_dir, run)
    return _settled_unseen(run, names) if names else None


def _settled_unseen(run: Run, names: Sequence[str]) -> Settled:
    return Settled(run, f"because of {', '.join(names)}", how_to_end(run))


def is_to_be_taken_over(run: Run) -> bool:
    """Whether an executor left it in the middle: then the truth about its operations comes first.

    So did whoever could not end a tool of it: its operation is under way until that has ended.
    """
    is_busy = any(each.status is OperationStatus.RUNNING for each in run.open_operations)
    in_the_middle = run.lease_owner is not None or is_busy or run.status is RunStatus.CANCELLING
    return in_the_middle and not run.is_over


def terms_of(place: Place, run: Run) -> Terms:
    """What the configuration that the run was accepted with says. Raises ConfigError if it is gone."""
    config = config_of(place, run, warn=lambda _: None)
    return Terms(config.lease, config.max_attempts, {name: tool.retries for name, tool in config.tools.items()})


def what_is_missing(run: Run, operations: Sequence[Operation] | None = None) -> tuple[str, str | None]:
    """Why a run stays reconciling, and the command that helps; or why something waits for `operations` of it."""
    missing = recovery.unknown_operations(run) if operations is None else operations
    names = ", ".join(f"{operation.operation_id} ({operation.name})" for operation in missing)
    name = f"{run.session_id}/{run.run_id}"
    first = missing[0].operation_id if missing else "OP"
    hint = f"find out and say so: agentrun reconcile {name} {first} --as succeeded|failed|cancelled"
    return f"nobody knows how {names} ended", hint


class _Case:
    """One lost run, while it is being recovered."""

    def __init__(self, place: Place, session: SessionDir, run_dir: RunDir, terms: Terms, frozen: Lease | None) -> None:
        self._place = place
        self._session = session
        self._run_dir = run_dir
        self._terms = terms
        self._frozen = frozen

    def take_over(self) -> Ready | Settled | None:
        """Fences the old executor out, then settles."""
        with InHand() as hand:
            with writing(self._session) as writer:
                liveness = hand.fd = self._liveness(writer)
                if liveness is None:
                    return None
                if self._run_dir.current(writer).ending is None:
                    self._run_dir.check_whole(writer)
                lease = self._begin(writer, liveness)
                recovery.learn_remote_ids(writer, lease, self._run_dir)
                self._intend(writer, lease)
            result = self._settle(lease)
            if isinstance(result, Settled):
                return result
            hand.keep()
            return Ready(result, liveness)

    def look_again(self) -> Ready | Settled | None:
        """A run that was left behind in order: something may have become known since, or the user has said it."""
        findings = self._find_out(recovery.unknown_operations(self._run_dir.load()))
        with writing(self._session) as writer:
            liveness = self._liveness(writer)
            if liveness is None:
                return None
            with InHand(liveness) as hand:
                self._run_dir.check_whole(writer)
                run = recovery.record_findings(writer, self._run_dir, findings)
                verdict = self._verdict(run)
                if not is_to_be_taken_over(run) and verdict is not Verdict.WIND_DOWN:
                    result = self._left_or_ready(run)
                    if isinstance(result, Settled):
                        return result
                    if has_liveness(self._run_dir.directory, liveness):
                        hand.keep()
                        return Ready(result, liveness)
                    # An executor that was fenced out has the lock: the one that goes on is kept apart by the lease.
        return self.take_over()

    # --- below

    def _liveness(self, writer: Writer) -> int | None:
        run = self._run_dir.current(writer)
        executor = self._run_dir.executor_of(run)
        if self._frozen is not None and executor == "frozen":
            # Still the same lease, and run out: in between it may have come to life, or somebody was quicker.
            is_still_frozen = self._run_dir.lease_of(run) == self._frozen
            return open_liveness(self._run_dir.directory) if is_still_frozen else None
        return take_to_drive(self._run_dir, run) if executor == "lost" else None

    def _begin(self, writer: Writer, liveness: int) -> Lease:
        run = self._run_dir.current(writer)
        fenced, reason = None, LOST
        if not has_liveness(self._run_dir.directory, liveness):
            # The lock is with the first of them as long as none that came after it has got it.
            has_lock = self._frozen is not None and (run.fenced is None or self._frozen.locked)
            fenced = self._frozen.owner.to_doc() if self._frozen and has_lock else run.fenced
            reason = f"its executor {self._frozen.owner} does not respond" if self._frozen else LOST
        seconds = self._terms.lease
        return recovery.begin(writer, self._run_dir, lease_seconds=seconds, reason=reason, fenced=fenced)

    def _verdict(self, run: Run) -> Verdict:
        return recovery.verdict(run, self._terms.max_attempts, is_used_up=self._run_dir.is_used_up(run))

    def _intend(self, writer: Writer, lease: Lease) -> None:
        """Stores why the run ends, if it is to end and nobody has said so: before anything is ended for that reason."""
        run = self._run_dir.current(writer)
        if run.ending is not None or self._verdict(run) is not Verdict.WIND_DOWN:
            return
        if self._run_dir.is_used_up(run):
            actor = this_actor() | {"user": DEADLINE}
            inbox.request_stop(
                writer, self._run_dir, actor=actor, reason="its time is used up", intent="timeout", via="timeout"
            )
            return
        reason = f"its executor was lost in each of {run.attempts} attempts (max_attempts = {self._terms.max_attempts})"
        self._run_dir.append(lease, writer, EventType.RUN_FAILING, {"reason": reason})
        self._run_dir.write_snapshot(writer)

    def _settle(self, lease: Lease) -> Run | Settled:
        findings: Mapping[str, Finding] = {}
        with self._renewing(lease):
            survivors = end_leftovers(self._place, self._run_dir)
            # What is still alive may yet do it: a probe's "it did not happen" is worth nothing then.
            if not survivors and self._run_dir.load().ending is None:
                findings = self._find_out(recovery.open_writes(self._run_dir.load()))
        run = self._run_dir.load()
        if run.ending is not None and not (survivors or unseen(self._run_dir, run)):
            stop_outside(self._place, self._session, self._run_dir, lease)
        with writing(self._session) as writer:
            return self._decide(writer, lease, survivors, findings)

    def _decide(
        self, writer: Writer, lease: Lease, survivors: Sequence[str], findings: Mapping[str, Finding]
    ) -> Run | Settled:
        run = self._run_dir.check(lease, writer)
        if survivors:
            reason = f"{', '.join(survivors)} cannot be ended"
            # Its operations stay open: they are not over.
            run = let_go(writer, lease, self._run_dir, reason, left=with_own(run))
            return Settled(run, reason, how_to_go_on(run, survivors, "recover"))
        if run.ending is not None:
            names = leave_unseen(writer, lease, self._run_dir)
            if names:
                return _settled_unseen(self._run_dir.current(writer), names)
            spent = self._run_dir.unrecorded_ms(run)
            run = wind_down(writer, lease, self._run_dir, executing_ms=spent)
            return Settled(run, run.reason or LOST)
        run = recovery.settle_open(writer, lease, self._run_dir, findings, self._terms.retries)
        result = self._left_or_ready(run)
        if isinstance(result, Settled):
            return result._replace(run=let_go(writer, lease, self._run_dir, result.reason))
        if run.fenced is not None:
            return pass_on(writer, lease, self._run_dir, TO_BE_CONTINUED, self._terms.lease)
        return let_go(writer, lease, self._run_dir, TO_BE_CONTINUED)

    def _left_or_ready(self, run: Run) -> Run | Settled:
        """The run itself if it can go on."""
        if recovery.unknown_operations(run):
            reason, hint = what_is_missing(run)
            return Settled(run, reason, hint)
        try:
            check_executable(self._place, run)
        except ConfigError as error:
            return Settled(run, error.message, error.hint, error)
        return run

    @contextmanager
    def _renewing(self, lease: Lease) -> Iterator[None]:
        from agentrun.executor.heartbeat import Heartbeat

        session = self._session.another()
        heartbeat = Heartbeat(session, self._run_dir.run_id, self._terms.lease)
        heartbeat.start()
        heartbeat.renew(lease)
        try:
            yield
        finally:
            heartbeat.stop()

    def _find_out(self, operations: Sequence[Operation]) -> dict[str, Finding]:
        """What a probe says of each, and where that is nothing, what a fenced executor left about it."""
        return find_out(self._place, self._run_dir, operations)


def find_out(place: Place, run_dir: RunDir, operations: Sequence[Operation]) -> dict[str, Finding]:
    """How these operations ended, by their ids, as far as it is known for certain: from the runs that they began, a

    probe, or a fenced executor's note.

    Nothing of the run may be alive that could still do what a probe denies; of an executor elsewhere that was fenced
    out nobody can tell as long as it has the executor's lock, nor of what was left where it cannot be seen from here,
    so such a denial is worth nothing.
    """
    told = findings_of_children(place, run_dir.load(), operations) if operations else {}
    probed = _probed(place, run_dir, [each for each in operations if each.operation_id not in told])
    run = run_dir.load()
    if (run.fenced is not None and is_executor_alive(run_dir.directory)) or out_of_sight(run_dir, run):
        probed = {each: found for each, found in probed.items() if found.status is not OperationStatus.FAILED}
    return recovery.stale_findings(run_dir, operations) | probed | told


def _probed(place: Place, run_dir: RunDir, operations: Sequence[Operation]) -> dict[str, Finding]:
    if not operations:
        return {}
    outside = outside_of(place, run_dir)
    asked = [operation for operation in operations if outside.can_probe(operation)]
    if not asked:
        return {}
    import anyio

    found: dict[str, Finding] = {}

    async def ask(operation: Operation) -> None:
        answer = await outside.probe(operation)
        if answer.is_certain:
            found[operation.operation_id] = Finding(OperationStatus(answer.status), answer.evidence, answer.result)

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            for operation in asked:
                group.start_soon(ask, operation)

    anyio.run(ask_all)
    return found
