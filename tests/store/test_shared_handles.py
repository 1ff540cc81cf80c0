"""A log's handle that is shared: reading through it goes on while another thread begins to write through it.

Covers promise 2: what reads is not handed another file under the number of the one it was reading.
"""

import json
import os
import threading
from pathlib import Path

from agentrun.records.codec import Doc
from agentrun.store.disk import Directory
from agentrun.store.log import Log

NAME = "messages.jsonl"
MANY = 2000


def a_long_log(directory: Path, length: int) -> Log:
    lines = (json.dumps({"seq": seq, "text": "x" * 200}) for seq in range(1, length + 1))
    (directory / NAME).write_text("".join(f"{line}\n" for line in lines))
    return Log(Directory.root(str(directory)), NAME)


def number(doc: Doc) -> int:
    return int(doc["seq"])


def test_who_reads_goes_on_reading_while_the_handle_begins_to_write(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, MANY)
    # A lower number is free then, which the next file that is opened gets.
    lower = os.open(tmp_path, os.O_RDONLY)
    reading = log.forward(number)
    read = [next(reading)[1]]
    os.close(lower)
    log.append(lambda seq: {"seq": seq, "text": "news"})
    (tmp_path / "other").write_text('{"seq":99}\n' * 100_000)
    # They take the number of a descriptor that was closed.
    others = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(8)]
    try:
        read += [seq for _, seq in reading]
    finally:
        for each in others:
            os.close(each)
    assert read == list(range(1, MANY + 2))
    assert log.damage == []


def test_the_file_is_opened_once_whoever_comes_first(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, 1)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(300):
        log.close()
        barrier = threading.Barrier(2)
        reader = threading.Thread(target=lambda each=barrier: (each.wait(), log.last_seq()))
        reader.start()
        barrier.wait()
        log.append(lambda seq: {"seq": seq, "text": "x"})
        reader.join()
    log.close()
    assert set(os.listdir("/proc/self/fd")) == before
