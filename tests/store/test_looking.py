"""Looking back for a few messages among many: the same are found as by decoding every line, without doing so.

Covers A15, B8, promises 2 and 16.
"""

import random
import sys
import tracemalloc
from pathlib import Path

import pytest

from agentrun.records.codec import encode_line
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.store.check.conversation import look_at_session
from agentrun.store.looking import newest_with
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing.trees import accept, cancel


def a_line(seq: int, mode: str = "follow-up", text: str = "x" * 120, run_id: str = "run-1") -> bytes:
    role = {"report": "assistant", "ended": "system", "compact": "system"}.get(mode, "user")
    doc = {"seq": seq, "sessionId": "long", "runId": run_id, "role": role, "mode": mode, "text": text}
    return encode_line(doc | {"at": "2026-01-02T03:04:05.678Z", "key": None, "actor": {"user": "ann"}})


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    tree = Tree(str(tmp_path), "ann")
    accept(tree.create_session(session_id="long"))
    return tree.session("long")


def write(session: SessionDir, lines: list[bytes]) -> SessionDir:
    """A new handle on the session, with these lines behind its first."""
    log = Path(session.messages.path)
    with log.open("r+b") as file:
        file.readline()
        file.truncate(file.tell())
        file.seek(0, 2)
        file.write(b"".join(lines))
    return session.another()


@pytest.mark.parametrize("seed", range(4))
def test_the_same_messages_are_found_as_by_reading_every_line(session: SessionDir, seed: int) -> None:
    """Whatever stands at the ends of the pieces: the value itself, a very long line, damage, another spelling."""
    chance = random.Random(seed)
    lines = []
    for seq in range(2, 1500):
        mode = chance.choices(["follow-up", "prompt", "compact", "steer"], [97, 1, 1, 1])[0]
        text = chance.choice(["x" * 120, 'the "prompt" \\"compact\\"', "y" * chance.randrange(900), "\x01"])
        line = a_line(seq, mode, "z" * 200_000 if seq % 701 == 0 else text, f"run-{seq}")
        if chance.random() < 0.05:
            line = line.replace(b'"mode":"prompt"', b'"mode" : "\\u0070rompt"').replace(b"\x01", b"\xff")
        lines.append(line if chance.random() > 0.02 else line[:-9] + b"\n")
    found = write(session, [*lines, b'{"seq":1500,"mode":"prompt"'])
    by_line = found.another()
    for since in (1, 2, 600, 1200, 1499):
        wanted = [
            each for each in by_line.messages_backward() if each.seq >= since and each.mode in ("prompt", "compact")
        ]
        assert list(found.messages_with(("prompt", "compact"), since)) == wanted
    newest, *_, oldest = [each for each in by_line.messages_backward() if each.begins_run]
    assert found.newest_prompt() == newest
    assert found.prompt_of(oldest.run_id) == oldest
    assert found.prompt_of("run-9999") is None
    seqs = [each.seq for each in newest_with(found.messages, found.message, ("prompt", "compact"))]
    assert seqs == sorted(set(seqs), reverse=True)
    assert {str(each) for each in found.messages.damage} <= {str(each) for each in by_line.messages.damage}


def test_who_writes_into_a_run_to_which_much_was_said_reads_little_of_it(session: SessionDir) -> None:
    read: list[str] = []
    code = Message.from_doc.__func__.__code__  # type: ignore[attr-defined]
    found = write(session, [a_line(seq) for seq in range(2, 62)])
    sys.setprofile(lambda frame, kind, _: read.append(kind) if frame.f_code is code else None)
    try:
        prompt = found.newest_prompt()
    finally:
        sys.setprofile(None)
    assert prompt is not None
    assert prompt.seq == 1
    assert read.count("call") < 20


def test_what_the_pieces_cut_is_found_once(session: SessionDir) -> None:
    """The value itself, between any two of its letters, and a line that is longer than a piece."""
    prompt = a_line(2, "prompt", run_id="run-2")
    for letters in range(len('"prompt"') + 1):
        behind = 65536 - (len(prompt) - prompt.index(b'"prompt"') - letters)
        short = b"".join(a_line(seq) for seq in range(3, 200))
        long = a_line(200, text="x" * (behind - len(short) - len(a_line(200, text=""))))
        found = write(session, [prompt, short + long])
        assert [each.seq for each in newest_with(found.messages, found.message, ("prompt",))] == [2, 1]
    found = write(session, [a_line(2, "prompt", "z" * 200_000 + "\x01", "run-2"), *map(a_line, range(3, 300))])
    assert [each.seq for each in newest_with(found.messages, found.message, ("prompt",))] == [2, 1]


def test_damage_that_it_comes_across_is_told(session: SessionDir) -> None:
    lines = [a_line(2, "prompt", run_id="run-2")[:-9] + b"\n", *(a_line(seq) for seq in range(3, 2000))]
    found = write(session, lines)
    prompt = found.newest_prompt()
    assert prompt is not None
    assert prompt.seq == 1
    assert [each.offset for each in found.messages.damage] == [Path(found.messages.path).read_bytes().index(b"\n") + 1]


@pytest.mark.slow
def test_a_run_with_many_undelivered_inputs_ends_in_the_memory_that_their_numbers_take(session: SessionDir) -> None:
    """Promise 16: what was said is looked at, not kept."""
    found = write(session, [a_line(seq, text="x" * 2000) for seq in range(2, 3002)])
    tracemalloc.start()
    try:
        with writing(found) as writer:
            run = found.run("run-1").load()
            assert [each.seq for each in writer.undelivered_backward(run)] == list(range(3001, 0, -1))
            assert writer.closing_message(run) is None
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    with writing(found) as writer:
        said = writer.append_message("run-1", "system", ENDED, "run-1 was cancelled")
        for _ in range(101):
            writer.append_message("run-2", "assistant", REPORT, "another's")
        told = writer.closing_message(found.run("run-1").load())
    assert isinstance(told, Message)
    assert told.seq == said.seq


@pytest.mark.slow
def test_a_run_is_stopped_in_the_memory_that_the_numbers_of_its_inputs_take(session: SessionDir) -> None:
    """Promise 16: all of them are listed, and the next model is not told each. # covers A5"""
    count = 8_000
    with Path(session.messages.path).open("ab") as file:
        file.write(b"".join(a_line(seq) for seq in range(2, count + 1)))
    tracemalloc.start()
    try:
        run = cancel(session.another(), "run-1")
        assert tracemalloc.get_traced_memory()[1] < 300 * count
    finally:
        tracemalloc.stop()
    assert run.returned_inputs == tuple(range(1, count + 1))
    assert session.another().run("run-1").load() == run
    newest = ", ".join(map(str, range(count - 19, count + 1)))
    told = session.another().tail(1)[0].text.splitlines()[-1]
    assert told == f"not delivered: {count} messages, the last ones {newest}"
    assert list(look_at_session(session.another())) == []
