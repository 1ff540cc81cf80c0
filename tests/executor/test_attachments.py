"""What an agent is told of attached files: as much as fits, never half a character, and where the rest is.

# covers A20 A25
"""

from agentrun.executor.attachments import SHOWN, SHOWN_OF_ALL, with_files, with_names
from agentrun.records.attachment import Attachment
from agentrun.records.message import Message
from agentrun.store import inbox
from agentrun.store.attachments import copy_for_tools, keep_attachment, path_of
from agentrun.store.inbox import Order
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from agentrun.testing.trees import fingerprint


def attach(session: SessionDir, **files: bytes) -> tuple[Message, RunDir]:
    """A prompt with files."""
    with writing(session) as writer:
        kept = tuple(keep_attachment(writer, name, "file", data) for name, data in files.items())
        return inbox.accept_prompt(writer, trees.said("go"), Order(attachments=kept))


def test_text_is_told_and_where_the_tools_find_it(session: SessionDir) -> None:
    message, run_dir = attach(session, notes=b"one\r\ntwo")
    told = with_files(session, run_dir, message).text
    path = f"{run_dir.directory.path}/scratch/attachments/notes"
    assert told == f"go\n\n[Attached file notes, 8 bytes, for tools at {path}]\none\r\ntwo\n[End of notes]"


def test_what_is_no_text_is_named_only(session: SessionDir) -> None:
    message, run_dir = attach(session, nul=b"a\0b", latin=b"\xe9")
    told = with_files(session, run_dir, message).text
    assert told.count("it is no text]") == 2
    assert "\0" not in told


def test_what_is_long_is_cut_between_characters_and_says_so(session: SessionDir) -> None:
    message, run_dir = attach(session, long="é".encode() * SHOWN, odd=b"x" + "é".encode() * SHOWN)
    told = with_files(session, run_dir, message).text
    assert told.count("goes on; the rest is not shown]") == 2
    assert "\ufffd" not in told
    assert len(told.encode()) < 2 * SHOWN + 1000


def test_many_files_have_one_bound(session: SessionDir) -> None:
    message, run_dir = attach(session, **{f"f{number}": bytes([65 + number]) * SHOWN for number in range(12)})
    told = with_files(session, run_dir, message).text
    assert len(told) < SHOWN_OF_ALL + 12 * 1000
    assert all(f"Attached file f{number}, " in told for number in range(12))


def test_an_earlier_prompt_names_its_files(session: SessionDir) -> None:
    message, _ = attach(session, notes=b"secret contents")
    assert with_names(message).text == "go\n[Attached then: notes, 15 bytes]"


def test_a_message_without_files_is_told_as_it_is(session: SessionDir) -> None:
    message, run_dir = attach(session)
    assert with_files(session, run_dir, message) == with_names(message) == message


def test_copies_are_made_once_and_whole(session: SessionDir) -> None:
    message, run_dir = attach(session, notes=b"all of it")
    run_dir = session.run("run-1")
    attachments = [Attachment.from_doc(each) for each in (message.accept or {})["attachments"]]
    with writing(session) as writer:
        # A crash has left the beginning of it.
        unfinished = run_dir.directory.ensure("scratch").ensure(".new-attachments")
        unfinished.replace("other", b"half")
        copy_for_tools(writer, run_dir, attachments)
        before = fingerprint(run_dir.directory.path)
        copy_for_tools(writer, run_dir, attachments)
    assert fingerprint(run_dir.directory.path) == before
    with open(path_of(run_dir, attachments[0]), "rb") as copy:
        assert copy.read() == b"all of it"
    assert sorted(run_dir.directory.open("scratch").names()) == ["attachments"]


def test_one_file_attached_twice_is_kept_once(session: SessionDir) -> None:
    attach(session, notes=b"same")
    attach(session, other=b"same")
    assert len(session.directory.open("attachments").names()) == 1


def test_a_run_made_again_has_its_files(session: SessionDir) -> None:
    _, run_dir = attach(session, notes=b"x")
    before = run_dir.event(next(iter(run_dir.all_events())).to_doc()).payload["attachments"]
    for name in run_dir.directory.names():
        run_dir.directory.remove(name)
    trees.accept(session)
    assert next(session.run("run-1").all_events()).payload["attachments"] == before != []


def test_bytes_that_are_gone_are_said_to_be(session: SessionDir) -> None:
    message, run_dir = attach(session, notes=b"x")
    kept = session.directory.open("attachments")
    for spoil in (lambda name: kept.replace(name, b"y"), kept.remove):
        spoil(kept.names()[0])
        assert "cannot be read any more" in with_files(session, run_dir, message).text
