"""A long log read from its beginning to its end: every record once and in order, damage named, memory flat.

Covers A15, A18, B8, promises 2 and 16.
"""

import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import agentrun
from agentrun.records.codec import encode_line
from agentrun.states import EventType
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept


def a_message(seq: int, text: str = "x" * 150) -> bytes:
    actor = {"user": "ann", "host": "tea", "pid": 4121}
    doc = {"seq": seq, "sessionId": "long", "runId": "run-1", "role": "user", "mode": "follow-up", "text": text}
    return encode_line(doc | {"at": "2026-01-02T03:04:05.678Z", "key": None, "actor": actor})


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(str(tmp_path), "ann")
    accept(made.create_session(session_id="long"))
    return made


def log_of(tree: Tree) -> Path:
    return Path(tree.session("long").messages.path)


def test_every_message_of_a_long_conversation_is_read_once_and_its_damage_is_named(tree: Tree) -> None:
    """Promise 2, wherever in the pieces the damage, a very long line or the torn end stands."""
    chance = random.Random(7)
    lines = [log_of(tree).read_bytes()]
    for seq in range(2, 1500):
        kind = chance.random()
        text = chance.choice(["x" * 150, 'with "quotes"\nand lines', "é" * 70, "\ud800"])
        line = a_message(seq, "y" * 300_000 if seq in (700, 701, 1400) else text)
        lines.append(line if kind > 0.01 else chance.choice([b"\n", line[:-9] + b"\n", line[:9] + b"\xff" + line[10:]]))
    log_of(tree).write_bytes(b"".join(lines) + b'{"seq":1500,"torn')
    by_line = tree.session("long")
    expected = list(by_line.messages.forward(by_line.message))
    assert len(by_line.messages.damage) > 5
    for since in (1, 2, 650, 1399):
        at_once = tree.session("long")
        wanted = [message for _, message in expected if message.seq >= since]
        assert list(at_once.messages_since(since)) == wanted
        assert list(at_once.lasting_messages(since)) == wanted
    whole = tree.session("long")
    assert len(list(whole.messages_since(1))) == len(expected)
    assert whole.messages.damage == by_line.messages.damage
    assert list(whole.every_entry()) == list(by_line.messages.entries(by_line.message))


def test_a_short_conversation_begins_with_the_message_that_was_asked_for(tree: Tree) -> None:
    with log_of(tree).open("ab") as file:
        file.write(a_message(2))
    for since in (0, 1, 2, 3):
        wanted = [seq for seq in (1, 2) if seq >= since]
        assert [message.seq for message in tree.session("long").messages_since(since)] == wanted
        assert [message.seq for message in tree.session("long").lasting_messages(since)] == wanted


def test_only_what_was_there_at_the_beginning_is_told(tree: Tree) -> None:
    with log_of(tree).open("ab") as file:
        file.write(b"".join(map(a_message, range(2, 1001))))
        file.flush()
        told = tree.session("long").lasting_messages()
        file.write(b"".join(map(a_message, range(1001, 1500))))
    assert [message.seq for message in told] == list(range(1, 1001))


def test_the_events_of_a_long_run_are_what_each_line_says(tree: Tree) -> None:
    executor = Executor(tree.session("long"), "run-1")
    for number in range(300):
        executor.append(EventType.MODEL_REQUEST_STARTED, operationId=f"op-{number}", model="m", attempt=1)
        executor.append(
            EventType.MODEL_REQUEST_FINISHED, operationId=f"op-{number}", status="succeeded", text='"a"\n', attempt=1
        )
    run_dir = tree.session("long").run("run-1")
    expected = [event for _, event in run_dir.events.forward(run_dir.event)]
    assert len(expected) > 600
    assert list(run_dir.all_events()) == list(run_dir.lasting_events()) == expected


QUICKLY = """
import sys
from agentrun.store.tree import Tree
assert "re" not in sys.modules
assert sum(1 for _ in Tree(sys.argv[1], "ann").session("long").messages_since(1)) == int(sys.argv[2])
print("re" in sys.modules)
"""


@pytest.mark.slow
def test_what_takes_long_to_load_is_loaded_for_what_takes_longer_to_read(tree: Tree) -> None:
    for count, is_loaded in ((500, "False"), (2000, "True")):
        have = len(log_of(tree).read_bytes().splitlines())
        with log_of(tree).open("ab") as file:
            file.write(b"".join(map(a_message, range(have + 1, count + 1))))
        argv = [sys.executable, "-S", "-c", QUICKLY, tree.root, str(count)]
        env = {"PYTHONPATH": str(Path(agentrun.__file__).parent.parent)}
        said = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert said.stdout.strip() == is_loaded, said.stderr


def test_reading_all_of_it_takes_no_more_memory_than_reading_some(tree: Tree) -> None:
    """Promise 16."""

    def peak() -> int:
        session = tree.session("long")
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in session.messages_since(1)) == count
        return tracemalloc.get_traced_memory()[1] - before

    peaks = []
    tracemalloc.start()
    try:
        for count in (1_000, 10_000):
            with log_of(tree).open("ab") as file:
                file.write(b"".join(map(a_message, range(len(log_of(tree).read_bytes().splitlines()) + 1, count + 1))))
            peak()
            peaks.append(peak())
    finally:
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5 < 2_000_000
