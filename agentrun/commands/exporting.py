"""Reads a session or a run for an export, in the order in which it happened, a turn at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun import ids
from agentrun.agent.context import reply_and_results
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Ask, Turn, tool_call
from agentrun.commands.names import Target
from agentrun.commands.show import told, whole_conversation
from agentrun.errors import AgentrunError
from agentrun.executor.attachments import with_names
from agentrun.records.event import Event
from agentrun.records.exported import Export, ExportedCall, ExportedRun, ExportedTurn, RunOver, Said, Step
from agentrun.records.message import ENDED, QUESTION, REPORT, Message
from agentrun.records.numbered import Marked, Numbers
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
        return _Steps(session, run_dir, document, view, events).told()

    return ExportedRun(view, events, steps, run_dir.report)


class _Steps:
    """Tells a run once, in order. Its messages are read where they stand: a run may have been told any number."""

    def __init__(
        self,
        session: SessionDir,
        run_dir: RunDir,
        document: Session,
        view: RunView,
        events: Callable[[], Iterator[Event]],
    ) -> None:
        self._run_dir = run_dir
        self._document = document
        self._view = view
        self._events = events
        self._messages = whole_conversation(session, view)
        session.messages.sync_for_reading()
        self._told = Numbers()
        self._report = run_dir.report() if view.run.is_over else None

    def told(self) -> Iterator[Step]:
        closing, self._questions = self._looked_through()
        if closing is not None:
            self._told.add(closing.seq)
        find = self._messages.finder()
        for turn, is_last in _turns(self._events):
            for seq in sorted(turn.inputs):
                message = None if seq in self._told else find(seq)
                if message is not None:
                    yield self._said(message, turn.turn_id)
            if turn.request is not None:
                yield self._turn(turn, is_last=is_last)
            for ask in turn.asks:
                yield from self._asked(ask)
        left = f"the run ended as {self._view.run.status}" if self._view.run.is_over else "waiting"
        for message in self._messages:
            if message.seq not in self._told:
                yield self._said(message, left=left if message.is_input else None)
        yield RunOver(self._view, self._report, closing)

    def _looked_through(self) -> tuple[Message | None, Marked]:
        """What says how the run ended, and which messages belong to each question."""
        last, questions = None, Marked()
        for last in self._messages:
            if last.question_id is not None:
                questions.add(last.question_id, last.seq)
        return last if last is not None and last.mode in (REPORT, ENDED) else None, questions

    def _asked(self, ask: Ask) -> Iterator[Said]:
        permission = ask.operation_id is not None
        for seq in self._questions.of(ask.question_id):
            message = None if seq in self._told else self._messages.at(seq)
            if message is None or message.question_id != ask.question_id:
                continue
            # The answer to a question belongs to the turn that it is delivered in.
            if message.mode == QUESTION or permission:
                yield self._said(message, permission=permission)

    def _turn(self, turn: Turn, *, is_last: bool) -> ExportedTurn:
        """The turn; if its reply became the report, that stands in its place: it is told once."""
        found = _exported_turn(self._run_dir.run_id, turn)
        report = self._report
        if not is_last or report is None or found.calls or not found.text:
            return found
        if not report.strip().startswith(found.text.strip()):
            return found
        self._report = None
        return found._replace(text=report, is_report=True)

    def _said(
        self, message: Message, turn_id: str | None = None, *, left: str | None = None, permission: bool = False
    ) -> Said:
        self._told.add(message.seq)
        run = self._document.run_of(message)
        return Said(message, run, with_names(message).text, turn_id, left, permission)


def _turns(events: Callable[[], Iterator[Event]]) -> Iterator[tuple[Turn, bool]]:
    """The turns of a run one after the other, each with what became known of its calls only later.

    And whether it is the last that asked the model.
    """
    late: dict[object, list[Event]] = {}
    last = None
    for event in events():
        if event.type in _FINDINGS:
            late.setdefault(event.payload.get("operationId"), []).append(event)
        elif event.type == E.MODEL_REQUEST_STARTED and event.payload.get("turnId") is not None:
            last = event.payload.get("operationId")
    for part in _parts(events):
        for turn in _folded(part, late):
            yield turn, turn.request is not None and turn.request.operation_id == last


def _parts(events: Callable[[], Iterator[Event]]) -> Iterator[list[Event]]:
    """The events of one turn after the other."""
    turn: list[Event] = []
    turn_id = None
    for event in events():
        begun = event.payload.get("turnId") if event.type in _BEGIN_TURN else None
        if begun is not None and begun != turn_id:
            yield turn
            turn, turn_id = [], begun
        if event.type not in _PASSED_OVER:
            turn.append(event)
    yield turn


def _folded(events: list[Event], late: dict[object, list[Event]]) -> list[Turn]:
    end = events[-1].seq if events else 0
    names = {event.payload.get("operationId") for event in events}
    findings = [event for name in names for event in late.get(name, ()) if event.seq > end]
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
