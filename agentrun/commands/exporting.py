"""Reads a session or a run for an export, in the order in which it happened, a turn at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun import ids
from agentrun.agent.context import reply_and_results
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn, tool_call
from agentrun.commands.names import Target
from agentrun.commands.show import told
from agentrun.errors import AgentrunError
from agentrun.executor.attachments import with_names
from agentrun.records.event import Event
from agentrun.records.exported import Export, ExportedCall, ExportedRun, ExportedTurn, RunOver, Said, Step
from agentrun.records.message import ENDED, QUESTION, REPORT, Message
from agentrun.records.run import Run
from agentrun.records.session import Session
from agentrun.records.views import RunView
from agentrun.states import EventType
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

E = EventType
# What only says how far something has come; there may be millions of them in a turn.
_PASSED_OVER = frozenset({E.TOOL_PROGRESS, E.RUN_LEASE_ACQUIRED, E.RUN_LEASE_RELEASED})
# What is found out about an operation may be found out long after its turn.
_FINDINGS = frozenset({E.OPERATION_RECONCILED, E.OPERATION_LATE_RESULT})
_BEGIN_TURN = frozenset({E.INPUT_DELIVERED, E.MODEL_REQUEST_STARTED})


def exported(target: Target, on_damage: list[str]) -> Export:
    """The session, or the run that was named, to be read piece by piece.

    What cannot be read is passed over and said in `on_damage`, by the time that everything is read.
    """
    session = target.session
    document = session.read()

    def messages() -> Iterator[Message]:
        for message in session.lasting_messages():
            if target.run_id is None or (message.run_id == target.run_id and message.seq > document.copied):
                yield message
        on_damage.extend(str(each) for each in session.messages.damage if str(each) not in on_damage)

    def copied() -> Iterator[Said]:
        for message in messages() if target.run_id is None and document.copied else ():
            if message.seq > document.copied:
                return
            yield Said(message, document.run_of(message), with_names(message).text)

    def runs() -> Iterator[ExportedRun]:
        names = [target.run_id] if target.run_id else _run_ids(session)
        for run_id in names:
            try:
                yield _exported_run(session, document, session.run(run_id), on_damage)
            except AgentrunError as error:
                if target.run_id is not None:
                    raise
                on_damage.append(str(error))

    return Export(document, target.run_id, messages, copied, runs)


def _run_ids(session: SessionDir) -> Iterator[str]:
    newest = next(iter(session.newest_run_ids(1)), None)
    for number in range(1, (ids.run_number(newest) or 0) + 1 if newest else 1):
        yield ids.run_id(number)


def _exported_run(session: SessionDir, document: Session, run_dir: RunDir, on_damage: list[str]) -> ExportedRun:
    view = told(run_dir)

    def events() -> Iterator[Event]:
        yield from run_dir.lasting_events()
        on_damage.extend(str(each) for each in run_dir.events.damage if str(each) not in on_damage)

    def steps() -> Iterator[Step]:
        return _with_report(_steps(run_dir, document, view, _messages_of(session, view.run), events))

    return ExportedRun(view, events, steps, run_dir.report)


def _messages_of(session: SessionDir, run: Run) -> list[Message]:
    """The messages of a run: those that stand between what began it and what says how it ended."""
    found: list[Message] = []
    for message in session.messages_since(run.message_seq):
        if message.run_id == run.run_id:
            found.append(message)
            if message.mode in (REPORT, ENDED):
                break
    session.messages.sync_for_reading()
    return found


def _steps(
    run_dir: RunDir, document: Session, view: RunView, messages: list[Message], events: Callable[[], Iterator[Event]]
) -> Iterator[Step]:
    waiting = {message.seq: message for message in messages}
    closing = messages[-1] if messages and messages[-1].mode in (REPORT, ENDED) else None
    if closing is not None:
        waiting.pop(closing.seq)

    def said(
        message: Message, turn_id: str | None = None, *, left: str | None = None, permission: bool = False
    ) -> Said:
        waiting.pop(message.seq, None)
        return Said(message, document.run_of(message), with_names(message).text, turn_id, left, permission)

    for turn in _turns(events):
        yield from (said(waiting[seq], turn.turn_id) for seq in sorted(turn.inputs) if seq in waiting)
        if turn.request is not None:
            yield _exported_turn(run_dir.run_id, turn)
        permissions = {ask.question_id: ask.operation_id is not None for ask in turn.asks}
        for message in [each for each in waiting.values() if each.question_id in permissions]:
            permission = permissions[str(message.question_id)]
            # The answer to a question belongs to the turn that it is delivered in.
            if message.mode == QUESTION or permission:
                yield said(message, permission=permission)
    left = f"the run ended as {view.run.status}" if view.run.is_over else "waiting"
    for message in list(waiting.values()):
        yield said(message, left=left if message.is_input else None)
    yield RunOver(view, run_dir.report() if view.run.is_over else None, closing)


def _with_report(steps: Iterator[Step]) -> Iterator[Step]:
    """The steps, with the report in the place of the reply that became it: it is told once."""
    held: list[Step] = []
    for step in steps:
        if isinstance(step, RunOver) and step.report is not None and held and isinstance(held[0], ExportedTurn):
            turn = held[0]
            if not turn.calls and turn.text and step.report.strip().startswith(turn.text.strip()):
                held[0] = turn._replace(text=step.report, is_report=True)
                step = step._replace(report=None)
        if isinstance(step, ExportedTurn | RunOver):
            yield from held
            held = []
        held.append(step)
    yield from held


def _turns(events: Callable[[], Iterator[Event]]) -> Iterator[Turn]:
    """The turns of a run one after the other, each with what became known of its calls only later."""
    late: dict[object, list[Event]] = {}
    for event in events():
        if event.type in _FINDINGS:
            late.setdefault(event.payload.get("operationId"), []).append(event)
    turn: list[Event] = []
    turn_id = None
    for event in events():
        begun = event.payload.get("turnId") if event.type in _BEGIN_TURN else None
        if begun is not None and begun != turn_id:
            yield from _folded(turn, late)
            turn, turn_id = [], begun
        if event.type not in _PASSED_OVER:
            turn.append(event)
    yield from _folded(turn, late)


def _folded(events: list[Event], late: dict[object, list[Event]]) -> list[Turn]:
    end = events[-1].seq if events else 0
    names = {event.payload.get("operationId") for event in events}
    findings = [event for name, found in late.items() if name in names for event in found if event.seq > end]
    return Transcript().catch_up([*events, *sorted(findings, key=lambda event: event.seq)]).turns


def _exported_turn(run_id: str, turn: Turn) -> ExportedTurn:
    reply = turn.reply
    told = list(reply_and_results(turn))
    results = {message.call_id: message.text for message in told if message.role == "tool"}
    calls = []
    for call in [tool_call(each) for each in reply.calls] if reply else []:
        result = results.get(call.call_id, "")
        calls.append(ExportedCall(call.call_id, call.name, call.arguments, result, turn.call_of(call.call_id)))
    return ExportedTurn(
        run_id=run_id,
        turn_id=turn.turn_id,
        request=turn.request,
        text=reply.text if reply else None,
        question=reply.question if reply else None,
        stop_reason=reply.stop_reason if reply else None,
        usage=reply.usage if reply else None,
        calls=tuple(calls),
        checks=turn.checks,
        remark=told[-1].text if told and told[-1].role == "user" else None,
    )
