"""What every writer does first: completes what the one before it may have left half done.

Two facts commit - a line in `messages.jsonl`, an event in `operations.jsonl` - and everything else follows from them.
A crash, or a power cut that lost what had not been synced, leaves the facts without what follows; it is made again
here, the same, before anything is built on it. Every step looks before it writes.
"""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.message import ANSWER, QUESTION, Message
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store import closing, layout
from agentrun.store.locks import session_lock
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


class writing:
    """Holds the session's lock, with everything redone. Raises Denied for a session of a newer format."""

    # Neither is a generator: what `contextlib` loads costs every writer more than the writing.
    __slots__ = ("_lock", "_session", "_writer")

    def __init__(self, session: SessionDir) -> None:
        self._session = session
        self._lock = session.locked()
        self._writer = Writer(session)

    def __enter__(self) -> Writer:
        self._lock.__enter__()
        try:
            self._check(self._session)
            redo(self._writer)
        except BaseException as error:
            self._lock.__exit__()
            self._writer.pay(error)
            raise
        return self._writer

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._lock.__exit__()
        self._writer.pay(error)

    @staticmethod
    def _check(session: SessionDir) -> None:
        session.check_writable()


class stopping(writing):
    """As `writing`, for whoever ends a run, which touches no summary.

    That a newer version has summarised the history must not keep anybody from stopping what spends money.
    """

    __slots__ = ()

    @staticmethod
    def _check(session: SessionDir) -> None:
        session.check_recordable()


class recording:
    """Holds the session's lock for an executor's own facts, which build on nothing that others left."""

    __slots__ = ("_lock", "_writer")

    def __init__(self, session: SessionDir) -> None:
        # However long that takes: a run is not lost because somebody has the lock.
        self._lock = session_lock(session.directory, session.refuse_frozen, session.check_in_place)
        self._writer = Writer(session)

    def __enter__(self) -> Writer:
        self._lock.__enter__()
        return self._writer

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__()
        if self._writer.owed:
            self._writer.pay(error[1])


def redo(writer: Writer) -> None:
    """Completes what an earlier writer left half done; changes nothing if nothing is."""
    prompt = writer.newest_prompt()
    for run_id in prompt.queue if prompt else ():
        make_run_again(writer, run_id)
    _free_useless_slot(writer)
    if prompt is not None:
        closing.stop_interrupted(writer, prompt)
    runs = list(writer.newest_known_runs())
    for run_dir in runs:
        _redo_run(writer, run_dir)
    _free_usurped_slot(writer, runs)
    closing.link_next(writer)


def make_run(writer: Writer, prompt: Message) -> RunDir:
    """The run of an accepted prompt: its directory and its first event. The caller syncs or leaves it to redo."""
    writer.session.runs().make(prompt.run_id)
    run_dir = writer.session.run(prompt.run_id)
    if run_dir.events.next_seq() == 1:
        from agentrun.records.acceptance import first_event

        event = first_event(writer.session.account, prompt)
        run_dir.events.append(lambda seq: event._replace(seq=seq).to_doc())
    return run_dir


def answered_payload(run: Run, answer: Message) -> Doc:
    """The payload of the `run.input_received` that follows from the line of an answer."""
    from agentrun.store.deadlines import remaining_deadline

    payload: Doc = {
        "questionId": answer.question_id,
        "messageSeq": answer.seq,
        "timeoutAt": remaining_deadline(run, run.timeout),
    }
    if (run.waiting_for or {}).get("kind") == "approval":
        payload["approved"] = answer.text == "approved"
        payload |= {"note": answer.extra["note"]} if "note" in answer.extra else {}
    return payload


def make_run_again(writer: Writer, run_id: str) -> None:
    """Makes an accepted run that is not there, from the line of its prompt; not one of which events were lost."""
    if writer.session.has_run(run_id):
        return
    prompt = writer.session.prompt_of(run_id)
    if prompt is None:
        return
    # Whoever wrote the prompt may have died before its sync; its run must not outlive it.
    writer.session.messages.sync()
    run_dir = make_run(writer, prompt)
    run_dir.events.sync()
    run_dir.directory.sync()
    writer.session.runs().sync()


def _free_useless_slot(writer: Writer) -> None:
    """An `active` that names no run that is there would keep every prompt out for ever."""
    active = writer.session.active()
    is_useful = active is not None and writer.session.has_run(active)
    if not is_useful and writer.session.directory.stat(layout.ACTIVE) is not None:
        writer.free_slot()


def _free_usurped_slot(writer: Writer, runs: list[RunDir]) -> None:
    """A run that waits for its turn must not have the slot while one that was begun is open: both would be executed."""
    if len(runs) < 2:
        return
    active = writer.session.active()
    still_open = [run for run in (run_dir.current(writer) for run_dir in runs) if not run.is_over]
    begun = {run.run_id for run in still_open if run.started_at is not None}
    if begun and active in {run.run_id for run in still_open} - begun:
        writer.free_slot()


def _redo_run(writer: Writer, run_dir: RunDir) -> None:
    run = run_dir.current(writer)
    writer.heed_numbers(run)
    if run.status is RunStatus.QUEUED and run.ending is not None:
        closing.finish_queued(writer, run_dir, run.reason)
    elif run.is_over:
        holds_slot = writer.session.active() == run.run_id
        if holds_slot or (run.started_at is None and not _is_published(writer, run_dir, run)):
            # What follows must not outlive it.
            closing.make_end_last(writer, run_dir, run)
            closing.publish(writer, run_dir, run)
    elif run.status is RunStatus.WAITING_INPUT:
        _redo_waiting(writer, run_dir, run)


def _is_published(writer: Writer, run_dir: RunDir, run: Run) -> bool:
    """Whether all is done that follows from the end of a run that never had the slot, which would tell of it."""
    snapshot = run_dir.snapshot()
    return snapshot is not None and snapshot.is_over and writer.closing_message(run) is not None


def _redo_waiting(writer: Writer, run_dir: RunDir, run: Run) -> None:
    waiting = run.waiting_for or {}
    question_id = waiting.get("questionId")
    messages = writer.session.messages_with((QUESTION, ANSWER), run.message_seq)
    about = [each for each in messages if (each.run_id, each.question_id) == (run.run_id, question_id)]
    if not any(message.mode == QUESTION for message in about):
        run_dir.events.sync()
        text = str(waiting.get("text"))
        writer.append_message(run.run_id, "assistant", QUESTION, text, question_id=question_id)
    answer = next((message for message in about if message.mode == ANSWER), None)
    if answer is not None:
        writer.session.messages.sync()
        run_dir.append_as_anyone(writer, EventType.RUN_INPUT_RECEIVED, answered_payload(run, answer))
        run_dir.write_snapshot(writer)
