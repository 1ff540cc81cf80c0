"""Takes conversations of other programs in: what their files tell, made into sessions with runs that are over.

What the user said begins a run, or is a follow-up of one that has not answered yet. A reply without calls answers; the
last one is the run's report. A call without a result in the file has none here either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agentrun import clock, ids
from agentrun.adapters.foreign.lines import beginning
from agentrun.errors import UsageError
from agentrun.executor.outputs import LINE_LIMIT
from agentrun.records.codec import Doc
from agentrun.records.foreign import Head, Over, PassedOver, Replied, Resulted, Said, Titled, Told, Used
from agentrun.records.message import FOLLOW_UP, PROMPT
from agentrun.records.session import Session
from agentrun.records.usage import told_usage
from agentrun.states import EventType, RunStatus
from agentrun.store.foreign import ForeignRun, ForeignSession
from agentrun.store.staging import Staging
from agentrun.store.tree import Tree

E = EventType
NOT_TOLD = "the imported file does not say how it went on"
NO_RESULT = "the imported file has no result of this call"
# Those of a model that mean more than that it was done or wanted calls.
_STOP_REASONS = ("max_tokens", "refusal")
_ENDS = {"completed": RunStatus.COMPLETED, "cancelled": RunStatus.CANCELLED, "failed": RunStatus.FAILED}


class Origin(NamedTuple):
    """The file that is taken in: which program's, its name, what it holds, and when it was changed last."""

    kind: str
    name: str
    sha256: str
    bytes: int
    changed_at: str


class Taken(NamedTuple):
    """A session that was taken in. `passed_over` counts by kind what of the file is not in it."""

    session: Session
    messages: int
    runs: int
    passed_over: Doc


def take_in(tree: Tree, origin: Origin, told: Iterable[Told], new_id: str | None) -> list[Taken]:
    """Takes in all conversations that the file tells, or none of them.

    Raises NameTaken, StorageFailed, UsageError if there is none in it or one id is to be given to several, and what
    `told` raises.
    """
    with tree.staging() as staging:
        taken = list(_sessions(staging, origin, told, new_id))
        if not taken:
            raise UsageError(f"{origin.name} has no conversation in it, as {origin.kind} writes them")
        staging.publish(each.session.session_id for each in taken)
    return taken


def _sessions(staging: Staging, origin: Origin, told: Iterable[Told], new_id: str | None) -> Iterator[Taken]:
    making: _Making | None = None
    # What stands before the first conversation belongs to it.
    before, title, count = Counter[str](), None, 0
    for each in told:
        if making is None and isinstance(each, PassedOver):
            before[each.kind] += 1
        elif making is None and isinstance(each, Titled):
            title = beginning(each.title)
        elif making is None or isinstance(each, Head):
            if making is not None and (done := making.finish()):
                yield done
            count += 1
            if count > 1 and new_id is not None:
                raise UsageError(f"{origin.name} has several conversations; one id cannot be given to all of them")
            head = each if isinstance(each, Head) else Head(None, getattr(each, "at", None))
            making = _Making(staging, origin, head._replace(title=head.title or title), new_id)
            making.passed_over += before
            before, title = Counter(), None
            making.take(each)
        else:
            making.take(each)
    if making is not None and (done := making.finish()):
        yield done


class _Turn(NamedTuple):
    """A reply that may still go on, and the results that have come so far."""

    reply: Replied
    results: dict[str, Resulted]


class _Making:
    """One conversation, taken a piece at a time; a turn of it is in memory."""

    def __init__(self, staging: Staging, origin: Origin, head: Head, new_id: str | None) -> None:
        self.passed_over: Counter[str] = Counter()
        self._origin = origin
        self._head = head
        self._title = head.title
        self._at = head.at or origin.changed_at
        self._begun_at = self._at
        document = Session(
            new_id or ids.new_session_id(), staging.account, "", None, False, None, {}, None,
            created_at=self._at, updated_at=self._at, revision=1,
        )  # fmt: skip
        self._session = ForeignSession(staging, document)
        self._run: ForeignRun | None = None
        self._turn: _Turn | None = None
        self._turns = 0
        self._operations = 0
        self._delivered = 0
        self._last_text: str | None = None

    def take(self, told: Told) -> None:
        """Takes the next piece."""
        match told:
            case PassedOver():
                self.passed_over[told.kind] += 1
            case Titled():
                self._title = beginning(told.title)
            case Said():
                self._said(told)
            case Replied():
                self._replied(told)
            case Used():
                if self._turn is not None:
                    self._turn = self._turn._replace(reply=self._turn.reply._replace(usage=told.usage))
            case Resulted():
                self._resulted(told)
            case Over():
                self._time(told.at)
                if self._run is not None:
                    self._end(told.how, told.reason)
            case Head():
                pass  # it is what this was made with

    def finish(self) -> Taken | None:
        """The session as it is in the end; None if the file tells of no run in it."""
        if self._run is not None:
            self._end("completed", NOT_TOLD)
        if not self._session.runs:
            return None
        head, origin = self._head, self._origin
        imported: Doc = {
            "kind": origin.kind, "name": origin.name, "sha256": origin.sha256, "bytes": origin.bytes,
            "sessionId": head.session_id, "workingDirectory": head.working_directory, "version": head.version,
            "at": clock.timestamp(), "passedOver": dict(sorted(self.passed_over.items())),
        }  # fmt: skip
        document = self._session.document._replace(
            title=self._title or "", updated_at=self._at, extra={"imported": imported}
        )
        return Taken(document, self._session.finish(document), self._session.runs, imported["passedOver"])

    def _time(self, at: str | None) -> str:
        """The time of what comes next: that of the file, or of what came before."""
        self._begun_at, self._at = self._at, at or self._at
        return self._at

    def _said(self, said: Said) -> None:
        if self._run is not None and self._has_answered:
            self._end("completed", None)
        at, extra = self._time(said.at), _origin_of(said.origin)
        self._title = self._title or beginning(said.text)
        if self._run is None:
            self._begin(said.text, at, extra)
        else:
            self._run.add_input(FOLLOW_UP, said.text, at, extra)

    def _begin(self, text: str, at: str, extra: Doc) -> ForeignRun:
        self._turns = self._operations = self._delivered = 0
        self._last_text = None
        self._run = self._session.begin_run(text, at, extra)
        return self._run

    @property
    def _has_answered(self) -> bool:
        return self._turn is not None and not self._turn.reply.calls and bool(self._turn.reply.text)

    def _replied(self, reply: Replied) -> None:
        at = self._time(reply.at)
        reply = reply._replace(calls=tuple(call._replace(at=call.at or at) for call in reply.calls))
        if self._run is None:
            self._begin("", reply.began_at or at, {})
        if self._turn is not None and self._turn.reply.group == reply.group:
            self._turn = self._turn._replace(reply=_joined(self._turn.reply, reply))
            return
        self._flush()
        self._turn = _Turn(reply._replace(began_at=reply.began_at or self._begun_at, at=at), {})

    def _resulted(self, result: Resulted) -> None:
        at = self._time(result.at)
        turn = self._turn
        if (
            turn is None
            or result.call_id in turn.results
            or result.call_id not in {c.call_id for c in turn.reply.calls}
        ):
            self.passed_over["result of no call"] += 1
            return
        turn.results[result.call_id] = result._replace(at=at)

    def _end(self, how: str, reason: str | None) -> None:
        """Ends the run; one that is said to have completed and has no last word has failed."""
        assert self._run is not None
        has_answered = self._has_answered
        self._flush()
        if how == "completed" and has_answered:
            self._run.finish(RunStatus.COMPLETED, self._at, None, self._last_text)
        else:
            end = RunStatus.FAILED if how == "completed" else _ENDS[how]
            self._run.finish(end, self._at, reason or NOT_TOLD, None)
        self._run = None

    def _flush(self) -> None:
        """Writes the turn down."""
        run, turn = self._run, self._turn
        self._turn = None
        if run is None or turn is None:
            return
        reply = turn.reply
        self._turns += 1
        turn_id, began_at, at = f"turn-{self._turns}", reply.began_at or self._at, reply.at or self._at
        new, self._delivered = run.inputs[self._delivered :], len(run.inputs)
        # An event for each kind; what began the run is the first input of its first turn.
        kinds = ((PROMPT, new[:1]), (FOLLOW_UP, new[1:])) if self._turns == 1 else ((FOLLOW_UP, new),)
        for mode, seqs in kinds:
            if seqs:
                run.append(E.INPUT_DELIVERED, began_at, {"messageSeqs": seqs, "mode": mode, "turnId": turn_id})
        request: Doc = {"operationId": self._next_operation(), "attempt": 1}
        asked = request | {"turnId": turn_id, "model": reply.model or self._origin.kind}
        run.append(E.MODEL_REQUEST_STARTED, began_at, asked)
        calls = [{"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
        stop = reply.stop_reason if reply.stop_reason in _STOP_REASONS else "end_turn"
        answered: Doc = {
            "status": "succeeded", "stopReason": stop, "text": reply.text, "toolCalls": calls,
            "usage": told_usage(reply.usage),
        }  # fmt: skip
        run.append(E.MODEL_REQUEST_FINISHED, at, request | answered | _origin_of(reply.origin))
        self._last_text = reply.text
        self._write_calls(run, turn, turn_id, at)

    def _write_calls(self, run: ForeignRun, turn: _Turn, turn_id: str, at: str) -> None:
        operations: dict[str, Doc] = {}
        for call in turn.reply.calls:
            names: Doc = {"operationId": self._next_operation(), "toolCallId": call.call_id, "toolName": call.name}
            operations[call.call_id] = names | {"attempt": 1}
            arguments = call.arguments if isinstance(call.arguments, dict) else {}
            # What a call of another program did outside is not known here, and no concern of agentrun's.
            more: Doc = {"turnId": turn_id, "arguments": arguments, "effect": None, "idempotencyKey": None}
            run.append(E.TOOL_REGISTERED, call.at or at, names | more)
            run.append(E.TOOL_STARTED, call.at or at, operations[call.call_id])
        for result in turn.results.values():
            said: Doc = {"status": "failed", "error": "the tool reported an error"} if result.is_error else {}
            ended = {"status": "succeeded", "mayHaveEffects": False} | said | _output(run, result.output)
            run.append(E.TOOL_FINISHED, result.at or at, operations.pop(result.call_id) | ended)
        for names in operations.values():
            lost = {"status": "cancelled", "error": NO_RESULT, "mayHaveEffects": True}
            run.append(E.TOOL_FINISHED, self._at, names | lost)

    def _next_operation(self) -> str:
        self._operations += 1
        return f"op-{self._operations}"


def _joined(reply: Replied, more: Replied) -> Replied:
    """A reply and the next piece of it."""
    known = {call.call_id for call in reply.calls}
    return reply._replace(
        text="\n\n".join(part for part in (reply.text, more.text) if part),
        calls=reply.calls + tuple(call for call in more.calls if call.call_id not in known),
        at=more.at or reply.at,
        model=more.model or reply.model,
        usage=more.usage or reply.usage,
        stop_reason=more.stop_reason or reply.stop_reason,
    )


def _output(run: ForeignRun, output: str) -> Doc:
    if len(output) * 4 <= LINE_LIMIT or len(output.encode("utf-8", "replace")) <= LINE_LIMIT:
        return {"result": output}
    blob = run.keep(output)
    shown = output.encode("utf-8", "replace")[:LINE_LIMIT].decode("utf-8", "ignore")
    return {"result": f"{shown}\n[{blob['bytes']} bytes, kept in blobs/{blob['sha256']}]", "blob": blob}


def _origin_of(origin: str | None) -> Doc:
    """Under which id the other program knows it."""
    return {"imported": {"id": origin}} if origin else {}
