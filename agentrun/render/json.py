"""The documents that `--json` prints, and the one form in which a line of JSON leaves the program."""

from __future__ import annotations

from agentrun.errors import AgentrunError, Ambiguous, CorruptRecord
from agentrun.records.codec import Doc, encode_line
from agentrun.records.event import Event
from agentrun.records.views import InputState, RunDetail, SessionRow, SessionView
from agentrun.render.safe import escaped_in_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentrun.records.timeline import RunRecord


def json_line(doc: Doc) -> bytes:
    """`doc` as one line of UTF-8 that means the same, has no line break inside, and is safe on a terminal."""
    return escaped_in_json(encode_line(doc).decode("utf-8")).encode("utf-8")


def session_doc(view: SessionView) -> Doc:
    """`show SESSION --json`: the session and its runs, newest first."""
    return {"session": view.session.to_doc(), "runs": [run.to_doc() for run in view.runs]}


def run_doc(detail: RunDetail, events: Iterable[Event] | None = None) -> Doc:
    """`show SESSION/RUN --json`. `operations` holds the stored lines of the run if `events` gives them.

    Without them each operation is one folded object. `inputs` says what became of the user's messages.
    """
    operations = detail.operations if events is None else events
    return {
        "run": detail.view.to_doc(),
        "operations": [each.to_doc() for each in operations],
        "messages": [message.to_doc() for message in detail.messages],
        "inputs": [_input_doc(state) for state in detail.inputs],
        "report": detail.report,
        "children": [child.to_doc() for child in detail.children],
    }


def timeline_line(record: RunRecord) -> Iterator[bytes]:
    """`show --timeline --json`: a run against time; what its operations said is in `show SESSION/RUN --json`.

    One line, in as many pieces as the run had operations and inputs, and a few.
    """
    detail, timeline = record
    run = detail.view.run
    head: Doc = {"sessionId": run.session_id, "runId": run.run_id, "status": detail.view.status.value}
    yield json_line(head | {"statuses": [stay.to_doc() for stay in timeline.stays]}).removesuffix(b"}\n")
    yield b',"operations":['
    yield from _listed(bar.to_doc() for bar in timeline.bars)
    yield b'],"inputs":['
    yield from _listed(timeline.input_doc(state) for state in detail.inputs)
    yield b"]}\n"


def _listed(docs: Iterable[Doc]) -> Iterator[bytes]:
    between = b""
    for doc in docs:
        yield between + json_line(doc).removesuffix(b"\n")
        between = b","


def row_doc(row: SessionRow) -> Doc:
    """One line of `ls --json`."""
    return {
        "session": row.session.to_doc(),
        "run": row.newest.to_doc() if row.newest else None,
        "changedAt": row.changed_at,
    }


def error_doc(error: AgentrunError) -> Doc:
    """The envelope of an error. `code` is a word of the table of exit codes; more fields where they apply."""
    body: Doc = {
        "code": error.code,
        "message": error.message,
        "sessionId": error.session_id,
        "runId": error.run_id,
    }
    if error.hint:
        body["hint"] = error.hint
    if isinstance(error, Ambiguous):
        body["candidates"] = list(error.candidates)
    if isinstance(error, CorruptRecord):
        body |= {"path": error.path, "offset": error.offset}
    return {"error": body}


def _input_doc(state: InputState) -> Doc:
    return {
        "messageSeq": state.message.seq,
        "state": state.state,
        "turnId": state.turn_id,
        "reason": state.reason,
    }
