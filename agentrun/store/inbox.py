"""How input gets into a session: prompts, steers, follow-ups, answers, and the request to stop.

Each is one line that is durable before anybody is told; which kind of input a text is has been decided before
(`lifecycle.routing`), under the same lock.
"""

from __future__ import annotations

from agentrun import ids
from agentrun.errors import CorruptRecord, ImpossibleMode, KeyReused, SeqDiffers
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, decode, encode_document
from agentrun.records.message import ANSWER, COMPACT, PROMPT, Message
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store import closing, layout
from agentrun.store.disk import Directory
from agentrun.store.redo import answered_payload, make_run
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.attachment import Attachment


class Input(NamedTuple):
    """What somebody says: `key` makes repeating it harmless, `actor` is `{user host pid}`, `note` says why."""

    text: str
    actor: Doc
    key: str | None = None
    note: str | None = None


class Order(NamedTuple):
    """What a prompt asks for besides its text; with the text, all that is needed to make its run.

    `timeout` is executing time in seconds; `config` is `{path sha256}` of the configuration file. `at_head` puts it
    before all that wait for the slot, and stops the run that holds it.
    """

    agent: str | None = None
    references: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    timeout: float | None = None
    config: Doc | None = None
    parent_run: Doc | None = None
    continues: str | None = None
    at_head: bool = False


def already_accepted(writer: Writer, said: Input) -> Message | None:
    """The message that `said.key` was used for, with the same text, durable; None if the key is new.

    Raises KeyReused if the text was another one.
    """
    if said.key is None:
        return None
    hint = seq_of_key(writer.session, said.key)
    message = writer.session.message_at(hint) if hint else None
    if message is None or message.key != said.key:
        return None
    if message.text != said.text:
        raise KeyReused(
            f"the key {said.key!r} was used for another text (message {message.seq})",
            session_id=writer.session.session_id,
            run_id=message.run_id,
        )
    writer.session.messages.sync()
    return message


def check_last_seq(writer: Writer, expected: int | None) -> None:
    """Raises SeqDiffers unless the session's last message is `expected` (None: whatever it is)."""
    if expected is None:
        return
    last = writer.session.messages.next_seq() - 1
    if last != expected:
        # Who expects more than there is has missed nothing that came: he counted wrong, or means another session.
        since = f" --since {expected + 1}" if expected < last else " --tail 1"
        raise SeqDiffers(
            f"the last message of {writer.session.session_id} is {last}, not {expected}",
            hint=f"see what {'came' if expected < last else 'is the last'}: "
            f"agentrun show {writer.session.session_id} --messages{since}",
            session_id=writer.session.session_id,
        )


def seq_of_key(session: SessionDir, key: str) -> int | None:
    """The number of the message that `key` stands on, as far as the hint tells: it is checked against the message."""
    if session.directory.stat(layout.KEYS) is None:
        return None
    return _seq_in(session.directory.open(layout.KEYS), _hint_name(key))


def newest_key(session: SessionDir) -> int:
    """The highest number that any key's hint tells; 0 without one. The message need not have come."""
    if session.directory.stat(layout.KEYS) is None:
        return 0
    keys = session.directory.open(layout.KEYS)
    return max((_seq_in(keys, name) or 0 for name in keys.names() if ids.is_sha256(name)), default=0)


def _seq_in(keys: Directory, name: str) -> int | None:
    data = keys.read(name)
    try:
        seq = decode(data).get("seq") if data else None
    except ValueError:
        return None
    return seq if type(seq) is int else None


def remember_key(writer: Writer, key: str, seq: int) -> None:
    """Keeps the hint that message `seq` has `key`, durable."""
    keys = writer.session.directory.ensure(layout.KEYS)
    keys.replace(_hint_name(key), encode_document({"seq": seq}))


def accept_prompt(writer: Writer, said: Input, order: Order, mode: str = PROMPT) -> tuple[Message, RunDir]:
    """Accepts a prompt as a new run, which takes the slot if it is free and waits in the queue otherwise.

    With the mode `compact` it is no prompt but a line of the system: the run only summarises.

    One that goes to the head of the queue stops the run that holds the slot.
    """
    run_id = _next_run_id(writer)
    behind = [run_dir.run_id for run_dir in writer.open_runs()]
    accept: Doc = {
        "agent": order.agent,
        "references": list(order.references),
        "attachments": [attachment.to_doc() for attachment in order.attachments],
        "timeout": order.timeout,
        "config": order.config,
        "parentRun": order.parent_run,
        "continues": order.continues,
        # Where nothing is in the way, nothing is interrupted.
        "atHead": order.at_head and bool(behind),
        "behind": behind,
    }
    message = _append(writer, run_id, mode, said, accept=accept)
    # The message is the acceptance; all below follows from it, is not waited for and is redone if it is lost.
    run_dir = make_run(writer, message)
    if not behind:
        writer.take_slot(run_id)
    run_dir.write_snapshot(writer, durable=False)
    closing.stop_interrupted(writer, message)
    return message, run_dir


def add_input(writer: Writer, run_id: str, mode: str, said: Input) -> Message:
    """Adds a steer or a follow-up to an open run."""
    return _append(writer, run_id, mode, said)


def answer(writer: Writer, run_dir: RunDir, said: Input) -> Message:
    """Answers the question that the run waits for; the run may go on then. Raises ImpossibleMode if there is none."""
    run = run_dir.current(writer)
    if run.status is not RunStatus.WAITING_INPUT:
        raise ImpossibleMode(
            f"{run_dir.name} is {run.status} and waits for no answer",
            hint=f"see what it does: agentrun show {run_dir.name}",
            session_id=run.session_id,
            run_id=run.run_id,
        )
    question_id = (run.waiting_for or {}).get("questionId")
    note = {"extra": {"note": said.note}} if said.note else {}
    message = _append(writer, run.run_id, ANSWER, said, question_id=question_id, **note)
    run_dir.append_as_anyone(writer, EventType.RUN_INPUT_RECEIVED, answered_payload(run, message))
    run_dir.write_snapshot(writer)
    return message


def request_stop(
    writer: Writer,
    run_dir: RunDir,
    *,
    actor: Doc,
    reason: str,
    intent: str,
    via: str,
    force: bool = False,
    gone: bool = False,
) -> Run:
    """Stores the intent to stop an open run: the event, then the sentinel. A queued run is over with that.

    The first intent fixes how the run ends; later ones are only recorded. `force` asks to kill what is alive without
    a grace period, from then on; `gone` is the user's word that nothing is alive in the run's `whereabouts`. Returns
    the run as it is then.
    """
    payload: Doc = {"actor": actor, "reason": reason, "intent": intent, "via": via}
    payload |= ({"force": True} if force else {}) | ({"gone": True} if gone else {})
    return closing.stop(writer, run_dir, payload)


def request_operation_stop(
    writer: Writer, run_dir: RunDir, operation_id: str, *, actor: Doc, reason: str, via: str, force: bool = False
) -> Run:
    """Stores the intent to stop one open operation of a run that goes on; `force` as in `request_stop`."""
    payload: Doc = {"operationId": operation_id, "actor": actor, "reason": reason, "via": via}
    payload |= {"force": True} if force else {}
    return run_dir.append_as_anyone(writer, EventType.OPERATION_CANCEL_REQUESTED, payload)


def _append(writer: Writer, run_id: str, mode: str, said: Input, **fields: object) -> Message:
    if said.key is not None:
        # Before the message, and durable: a key without its hint would be accepted a second time.
        remember_key(writer, said.key, writer.session.messages.next_seq())
    role = "system" if mode == COMPACT else "user"
    return writer.append_message(run_id, role, mode, said.text, key=said.key, actor=said.actor, **fields)


def _next_run_id(writer: Writer) -> str:
    prompt = writer.newest_prompt()
    number = (ids.run_number(prompt.run_id) or 0) + 1 if prompt else 1
    # The line of a prompt may be damaged or lost; its run's number is not free for that, and neither is its own.
    runs = writer.session.runs()
    while runs.stat(ids.run_id(number)) is not None:
        _heed_run(writer, ids.run_id(number))
        number += 1
    return ids.run_id(number)


def _heed_run(writer: Writer, run_id: str) -> None:
    """Takes up which numbers of messages the run knows, if it can be read."""
    try:
        run = writer.session.run(run_id).load()
    except CorruptRecord:
        return
    writer.heed_numbers(run)


def _hint_name(key: str) -> str:
    import hashlib

    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
