"""The log: torn tails, damaged lines, full disks and failed syncs lose no record and never use a number twice.

Covers A12, A15, A18, A21, B8-B10, B12, B57, cases C1, C2 and C17, promises 2, 3, 12 and 16.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrun.errors import CorruptRecord, Denied, UsageError
from agentrun.records.codec import Doc
from agentrun.store.disk import Directory
from agentrun.store.log import Log

NAME = "messages.jsonl"
CHUNK = 1 << 16


def a_log(directory: Path) -> Log:
    return Log(Directory.root(str(directory)), NAME)


def numbered(doc: Doc) -> Doc:
    """Reads a line: whatever has a number is a record."""
    if type(doc.get("seq")) is not int or doc["seq"] < 1:
        raise ValueError("no seq")
    return doc


def record(text: str) -> Callable[[int], Doc]:
    return lambda seq: {"seq": seq, "text": text}


def line(seq: int, text: str = "x") -> bytes:
    return json.dumps({"seq": seq, "text": text}, separators=(",", ":")).encode() + b"\n"


def numbers(log: Log) -> list[int]:
    return [doc["seq"] for _, doc in log.forward(numbered)]


def test_records_are_numbered_from_one_and_read_in_both_directions(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.next_seq() == 1
    for number in range(1, 6):
        assert log.append(record(f"text {number}")) == {"seq": number, "text": f"text {number}"}
        log.sync()
        assert log.size() == (tmp_path / NAME).stat().st_size
    again = a_log(tmp_path)
    assert numbers(again) == [1, 2, 3, 4, 5]
    assert [doc["seq"] for doc in again.backward(numbered)] == [5, 4, 3, 2, 1]
    assert again.next_seq() == 6
    assert again.damage == []


def test_a_log_that_is_not_there_is_empty_and_reading_makes_none(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert list(log.forward(numbered)) == list(log.backward(numbered)) == []
    assert log.size() == log.offset_of(7) == 0
    log.sync_for_reading()
    assert list(tmp_path.iterdir()) == []


def test_a_handle_sees_what_others_appended_before_it_gives_out_a_number(tmp_path: Path) -> None:
    one, other = a_log(tmp_path), a_log(tmp_path)
    given = [log.append(record("x"))["seq"] for log in (one, other, other, one, other, one, one)]
    assert given == [1, 2, 3, 4, 5, 6, 7]


def test_what_cannot_be_stored_leaves_nothing_and_uses_no_number(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(record("x"))
    with pytest.raises(UsageError):
        log.append(lambda seq: {"seq": seq, "text": float("nan")})
    assert log.append(record("y"))["seq"] == 2
    assert (tmp_path / NAME).read_bytes() == line(1) + line(2, "y")


@pytest.mark.parametrize("cut", range(1, len(line(3, "the third"))))
def test_a_tail_torn_at_any_byte_is_set_aside_and_glued_to_nothing(tmp_path: Path, cut: int) -> None:
    whole, torn = line(1) + line(2), line(3, "the third")[:cut]
    (tmp_path / NAME).write_bytes(whole + torn)
    log = a_log(tmp_path)
    # Readers pass over it and leave it where it is.
    assert numbers(log) == [1, 2]
    assert [doc["seq"] for doc in log.backward(numbered)] == [2, 1]
    assert log.damage == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME]
    assert log.append(record("new"))["seq"] == 3
    assert (tmp_path / NAME).read_bytes() == whole + line(3, "new")
    kept = tmp_path / f"{NAME}.torn-{len(whole)}"
    assert kept.read_bytes() == torn
    assert kept.stat().st_mode & 0o777 == 0o600
    assert a_log(tmp_path).append(record("newer"))["seq"] == 4


def test_bytes_torn_twice_at_one_place_are_both_kept(tmp_path: Path) -> None:
    for torn in (b"first", b"second", b"third"):
        (tmp_path / NAME).write_bytes(line(1) + torn)
        assert a_log(tmp_path).next_seq() == 2
    kept = {path.read_bytes() for path in tmp_path.glob(f"{NAME}.torn-*")}
    assert kept == {b"first", b"second", b"third"}


def test_a_log_of_one_torn_record_begins_anew_at_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(line(1)[:-1])
    log = a_log(tmp_path)
    assert list(log.backward(numbered)) == []
    assert log.append(record("x"))["seq"] == 1
    assert (tmp_path / f"{NAME}.torn-0").read_bytes() == line(1)[:-1]


def test_a_tail_that_others_tore_meanwhile_is_set_aside_too(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(record("x"))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"seq":2,"te')
    assert log.append(record("y"))["seq"] == 2
    assert (tmp_path / NAME).read_bytes() == line(1) + line(2, "y")


DAMAGED_LINES = [
    b"", b"\0" * 300, b"garbage", line(3)[5:-1], line(3)[:-4], b'{"seq":3,"text":"\xff"}', b'["seq",3]',
    b'{"text":"x"}',
    b'{"seq":"3"}', b'{"seq":null}', b'{"seq":-3}', b'{"seq":0}', b"[" * 100_000, b'{"seq":' + b"9" * 5000 + b"}",
    b"\r", b"\xef\xbb\xbf" + line(3)[:-1],
]  # fmt: skip


@pytest.mark.parametrize("damaged", DAMAGED_LINES, ids=lambda data: f"{data[:20]!r}-{len(data)}")
def test_the_number_of_a_damaged_last_line_is_never_used_again(tmp_path: Path, damaged: bytes) -> None:
    """Promise 3."""
    before = line(1) + line(2)
    (tmp_path / NAME).write_bytes(before + damaged + b"\n")
    log = a_log(tmp_path)
    assert log.next_seq() == 4
    assert log.append(record("new"))["seq"] == 4
    assert (tmp_path / NAME).read_bytes() == before + damaged + b"\n" + line(4, "new")
    assert list(tmp_path.glob("*.torn-*")) == []
    fresh = a_log(tmp_path)
    assert numbers(fresh) == [1, 2, 4]
    assert [(each.offset, each.length) for each in fresh.damage] == [(len(before), len(damaged))]
    assert str(len(before)) in str(fresh.damage[0])
    assert str(tmp_path / NAME) in str(fresh.damage[0])


def test_three_damaged_lines_at_the_end_have_three_numbers(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(line(1) + b"\0\0\n" * 3)
    assert a_log(tmp_path).append(record("x"))["seq"] == 5
    (tmp_path / NAME).write_bytes(b"\0\0\n" * 3)
    assert a_log(tmp_path).append(record("x"))["seq"] == 4


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([1, 2, 4, 3], id="the last two changed places"),
        pytest.param([1, 2, 3, 3], id="the last one twice"),
        pytest.param([1, 9, 3, 3], id="one further up"),
        pytest.param([5, 1], id="the first one lost its place"),
    ],
)
def test_no_number_that_stands_there_is_used_again_where_the_lines_are_out_of_order(
    tmp_path: Path, order: list[int]
) -> None:
    (tmp_path / NAME).write_bytes(b"".join(map(line, order)))
    assert a_log(tmp_path).append(record("x"))["seq"] == max(order) + 1
    assert a_log(tmp_path).last_seq() == max(order) + 1
    # Also where the lines are long.
    (tmp_path / NAME).write_bytes(line(7, "y" * (CHUNK - 200)) + line(1))
    assert a_log(tmp_path).append(record("x"))["seq"] == 8


def test_a_block_of_nul_bytes_in_the_middle_hides_no_other_record(tmp_path: Path) -> None:
    """Case C1."""
    lines = [line(seq, "words " * 80) for seq in range(1, 41)]
    data = bytearray(b"".join(lines))
    start = sum(map(len, lines[:19]))
    data[start + 50 : start + 350] = b"\0" * 300
    (tmp_path / NAME).write_bytes(data)
    log = a_log(tmp_path)
    expected = [seq for seq in range(1, 41) if seq != 20]
    assert numbers(log) == expected
    assert [doc["seq"] for doc in log.backward(numbered)] == expected[::-1]
    assert [(each.offset, each.length, each.path) for each in log.damage] == [
        (start, len(lines[19]) - 1, str(tmp_path / NAME))
    ]
    assert log.append(record("x"))["seq"] == 41
    assert numbers(log) == [*expected, 41]


def test_a_block_over_the_end_of_a_line_costs_those_two_records_only(tmp_path: Path) -> None:
    lines = [line(seq, "words " * 80) for seq in range(1, 11)]
    data = bytearray(b"".join(lines))
    end = sum(map(len, lines[:5]))
    data[end - 100 : end + 100] = b"\0" * 200
    (tmp_path / NAME).write_bytes(data)
    log = a_log(tmp_path)
    assert numbers(log) == [1, 2, 3, 4, 7, 8, 9, 10]
    assert len(log.damage) == 1
    assert log.next_seq() == 11


@pytest.mark.parametrize("overwritten", [(3,), (4,), (3, 4), (2, 3, 4)], ids=str)
def test_a_nul_byte_in_place_of_a_newline_uses_no_number_again(tmp_path: Path, overwritten: tuple[int, ...]) -> None:
    """Promise 3: the records are whole and were acknowledged, though they are one damaged line now."""
    lines = [line(seq)[:-1] + (b"\0" if seq in overwritten else b"\n") for seq in range(1, 5)]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    log = a_log(tmp_path)
    assert log.append(record("new"))["seq"] == 5
    assert (tmp_path / NAME).read_bytes().startswith(b"".join(lines)), "the damaged bytes stay where they are"
    assert list(tmp_path.glob("*.torn-*")) == []
    fresh = a_log(tmp_path)
    assert numbers(fresh)[-1] == 5
    assert len(fresh.damage) == 1
    assert a_log(tmp_path).append(record("more"))["seq"] == 6


def test_a_damaged_line_that_claims_a_low_number_lowers_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"".join(map(line, range(1, 6))) + b'{"seq":1,"te\n')
    assert a_log(tmp_path).append(record("x"))["seq"] == 7


# What may stand behind the records 1 and 2: the next ones, in and out of order, and what damage makes of them.
TAILS = (
    *(line(seq) for seq in (2, 3, 4, 5, 9)), b'{"seq":3,"te\n', b'{"seq":4,"te\n', b'{"seq":7,"te\n', b"garbage\n",
    b"\n", line(3)[:-1] + b"\0" + line(4), line(4)[:-1] + b"\0", line(3)[:-1] + line(4), line(3)[:-1], b'{"seq":4',
    b"\0" * 9 + b"\n",
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(TAILS), min_size=1, max_size=4).map(b"".join))
@example(line(4) + line(9) + line(5))
@example(line(3)[:-1] + b"\0" + line(4))
def test_who_looked_before_finds_the_same_behind_it_as_who_comes_now(tail: bytes) -> None:
    with TemporaryDirectory() as before, TemporaryDirectory() as now:
        files = [Path(directory, NAME) for directory in (before, now)]
        files[0].write_bytes(line(1) + line(2))
        looked = a_log(Path(before))
        assert looked.next_seq() == 3
        for file in files:
            file.write_bytes(line(1) + line(2) + tail)
        assert looked.next_seq() == a_log(Path(now)).next_seq()
        kept = [{path.name: path.read_bytes() for path in file.parent.iterdir()} for file in files]
        assert kept[0] == kept[1]


@pytest.mark.slow
def test_very_many_damaged_lines_are_passed_over_and_named_in_one_go(tmp_path: Path) -> None:
    """Promise 16: a block of line feeds costs time in proportion to its length."""
    (tmp_path / NAME).write_bytes(line(1) + b"\n" * 100_000 + line(100_002))
    log = a_log(tmp_path)
    assert numbers(log) == [1, 100_002]
    assert numbers(log) == [1, 100_002]
    assert (count := len(log.damage)) == 100_000, count
    assert log.next_seq() == 100_003


# Lines of every kind: records, damaged ones, and ones around the size of what is read at once.
PIECES = st.sampled_from(["good"] * 8 + ["nul", "empty", "text", "gap", "long", "chunk", "longer"])


def build(pieces: list[str], chance: random.Random) -> bytes:
    out, seq = [], 0
    for piece in pieces:
        seq += 1
        match piece:
            case "good":
                out.append(line(seq, "x" * chance.randrange(50)))
            case "gap":
                seq += chance.randrange(1, 5)
                out.append(line(seq))
            case "nul":
                out.append(b"\0" * chance.randrange(1, 400) + b"\n")
            case "empty":
                out.append(b"\n")
            case "text":
                out.append(b"not JSON at all\n")
            case "long":
                out.append(line(seq, "y" * chance.randrange(3000, 9000)))
            case "chunk":
                out.append(line(seq, "z" * (CHUNK - len(line(seq, "")) + chance.randrange(-3, 4))))
            case "longer":
                out.append(line(seq, "w" * chance.randrange(2 * CHUNK, 5 * CHUNK)))
    return b"".join(out) + chance.choice([b"", b"", b"torn", b'{"seq":1', b"\0" * 70_000])


@pytest.mark.slow
@given(st.lists(PIECES, max_size=40), st.integers(0, 2**32))
@settings(max_examples=60)
def test_backward_is_forward_turned_round_and_halving_finds_what_looking_through_finds(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], seed: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    (directory / NAME).write_bytes(build(pieces, random.Random(seed)))
    log, other = a_log(directory), a_log(directory)
    forward = [doc for _, doc in log.forward(numbered)]
    assert [doc["seq"] for doc in forward] == _numbers_by_hand(directory / NAME)
    assert list(other.backward(numbered)) == forward[::-1]
    assert sorted(log.damage) == sorted(other.damage)
    last = forward[-1]["seq"] if forward else 0
    for seq in {1, 2, last // 3, last // 2, last - 1, last, last + 1, last + 9, *range(1, min(last, 12))}:
        found = [doc for _, doc in log.forward(numbered, log.offset_of(seq)) if doc["seq"] >= seq]
        assert found == [doc for doc in forward if doc["seq"] >= seq], seq
    shutil.rmtree(directory)


def _numbers_by_hand(path: Path) -> list[int]:
    found = []
    for each in path.read_bytes().split(b"\n")[:-1]:
        try:
            found.append(json.loads(each)["seq"])
        except (ValueError, KeyError):
            continue
    return found


def test_reading_on_from_any_record_s_end_gives_the_rest(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"".join(line(seq, "x" * (seq * 37 % 200)) for seq in range(1, 200)))
    log = a_log(tmp_path)
    for offset, doc in log.forward(numbered):
        follower = log.forward(numbered, offset)
        assert next((later["seq"] for _, later in follower), 200) == doc["seq"] + 1


def bytes_read(action: Callable[[], Any]) -> int:
    """How many bytes this process reads during `action`, as the kernel counts them."""

    def count() -> int:
        with open("/proc/self/io", "rb") as file:
            return int(file.readline().split()[1])

    before = count()
    action()
    return count() - before


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the kernel counts bytes here only")
def test_the_end_of_a_huge_log_and_any_number_in_it_cost_a_few_blocks(tmp_path: Path) -> None:
    """Case C17."""
    with (tmp_path / NAME).open("wb") as file:
        for start in range(1, 400_001, 1000):
            file.writelines(line(seq, "some words that somebody said") for seq in range(start, start + 1000))
    size = (tmp_path / NAME).stat().st_size
    assert size > 20_000_000
    log = a_log(tmp_path)
    assert bytes_read(lambda: next(log.backward(numbered))) < 4 * CHUNK
    assert bytes_read(lambda: [doc for doc, _ in zip(log.backward(numbered), range(20), strict=False)]) < 4 * CHUNK
    assert bytes_read(lambda: a_log(tmp_path).append(record("x"))) < 4 * CHUNK
    assert bytes_read(lambda: log.offset_of(200_000)) < 60 * CHUNK


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the kernel counts bytes here only")
def test_a_very_long_line_is_read_a_few_times_and_not_at_each_step_of_a_search(tmp_path: Path) -> None:
    """Case C17: one record of very many bytes."""
    long = 30_000_000
    lines = [*(line(seq) for seq in range(1, 100)), line(100, "x" * long), *(line(seq) for seq in range(101, 200))]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    log = a_log(tmp_path)
    for seq in (1, 50, 99, 100, 101, 150, 199, 500):
        assert bytes_read(lambda seq=seq: log.offset_of(seq)) < 8 * long  # type: ignore[misc]
        found = next((doc["seq"] for _, doc in log.forward(numbered, log.offset_of(seq)) if doc["seq"] >= seq), None)
        assert found == (seq if seq < 200 else None)
    assert next(log.backward(numbered))["seq"] == 199


SHORT_WRITE = """\
import json, resource, signal, sys
from agentrun.errors import AgentrunError
from agentrun.store.disk import Directory
from agentrun.store.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
directory, text, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = Log(Directory.root(directory), "messages.jsonl")
for _ in range(3):
    log.append(lambda seq: {"seq": seq, "text": "x"})
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
said = []
for _ in range(2):
    try:
        log.append(lambda seq: {"seq": seq, "text": text})
    except AgentrunError as error:
        said.append([type(error).__name__, error.message])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
said.append(log.append(lambda seq: {"seq": seq, "text": text})["seq"])
print(json.dumps(said))
"""


@pytest.mark.parametrize("room", [0, 1, 10, 30])
def test_a_write_that_only_half_succeeds_leaves_no_fragment_and_the_next_one_works(tmp_path: Path, room: int) -> None:
    """Case C2."""
    start = b"".join(line(seq) for seq in (1, 2, 3))
    argv = [sys.executable, "-c", SHORT_WRITE, str(tmp_path), "the one that matters", str(len(start) + room)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    *refused, seq = json.loads(done.stdout)
    assert [name for name, _ in refused] == ["StorageFailed", "StorageFailed"]
    for _, message in refused:
        assert errno.errorcode[errno.EFBIG] in message
        assert str(tmp_path / NAME) in message
    assert seq == 4
    assert (tmp_path / NAME).read_bytes() == start + line(4, "the one that matters")
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME]


FAILED_SYNC = """\
import json, os, sys
from agentrun.errors import AgentrunError
from agentrun.store.disk import Directory
from agentrun.store.log import Log
def attempt(action):
    try:
        return ["done", action()]
    except AgentrunError as error:
        return [type(error).__name__, error.message]
directory = sys.argv[1]
log = Log(Directory.root(directory), "messages.jsonl")
make = lambda seq: {"seq": seq, "text": "x"}
said = [attempt(lambda: log.append(make)["seq"]), attempt(log.sync)]
said += [attempt(lambda: log.append(make)["seq"]), attempt(log.sync)]
other = Log(Directory.root(directory), "messages.jsonl")
said += [attempt(lambda: other.append(make)["seq"]), attempt(other.sync)]
said.append(attempt(lambda: [doc["seq"] for doc in Log(Directory.root(directory), "messages.jsonl").backward(dict)]))
third = Log(Directory.root(directory), "other.jsonl")
said.append(attempt(lambda: third.append(make)["seq"]))
print(json.dumps(said))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes the system call fail")
def test_after_a_failed_sync_the_process_appends_no_more_to_that_log_and_a_new_process_may(tmp_path: Path) -> None:
    """Promise 12."""
    fail = ["strace", "-f", "-qqq", "-o", os.devnull, "-e", "inject=fdatasync:error=EIO:when=1"]
    argv = [*fail, sys.executable, "-c", FAILED_SYNC, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    first, sync, again, sync_again, through_other, other_sync, reading, other_file = json.loads(done.stdout)
    assert first == ["done", 1]
    assert sync[0] == "StorageFailed"
    assert "EIO" in sync[1]
    assert "unknown" in sync[1]
    for refused in (again, sync_again, through_other, other_sync):
        assert refused[0] == "StorageFailed"
        assert "no more" in refused[1]
    assert reading == ["done", [1]]
    assert other_file == ["done", 1]
    done = subprocess.run(
        [sys.executable, "-c", FAILED_SYNC, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)[:4] == [["done", 2], ["done", None], ["done", 3], ["done", None]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_sync_that_fails_while_a_torn_tail_is_cut_ends_the_appending_as_well(tmp_path: Path) -> None:
    """Promise 12: what others left unsynced in the file may be lost by that, too."""
    (tmp_path / NAME).write_bytes(line(1) + b'{"seq":2,')
    fail = ["strace", "-f", "-qqq", "-o", os.devnull, "-e", "inject=fdatasync:error=EIO:when=1"]
    done = subprocess.run(
        [*fail, sys.executable, "-c", FAILED_SYNC, str(tmp_path)], capture_output=True, text=True, check=True
    )
    first, sync = json.loads(done.stdout)[:2]
    assert first[0] == sync[0] == "StorageFailed"
    assert "unknown" in first[1]
    assert "no more" in sync[1]


@pytest.mark.parametrize("kind", ["symlink", "dangling", "directory", "fifo", "hard link", "socket"])
def test_what_is_planted_in_place_of_a_log_is_refused_untouched_and_without_waiting(tmp_path: Path, kind: str) -> None:
    """Case C21."""
    outside = tmp_path / "outside"
    outside.write_bytes(line(1))
    inside = tmp_path / "in"
    inside.mkdir()
    plant(inside / NAME, kind, outside)
    log = a_log(inside)
    for action in (
        lambda: list(log.forward(numbered)), lambda: list(log.backward(numbered)), log.size, log.next_seq, log.sync,
        lambda: log.append(record("x")), lambda: log.offset_of(3), log.sync_for_reading,
    ):  # fmt: skip
        with pytest.raises(Denied, match=NAME):
            action()
    assert outside.read_bytes() == line(1)
    assert [path.name for path in inside.iterdir()] == [NAME]


def plant(path: Path, kind: str, outside: Path) -> None:
    """Puts something at `path` that does not belong there."""
    match kind:
        case "symlink":
            path.symlink_to(outside)
        case "dangling":
            path.symlink_to(outside.parent / "nowhere")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "hard link":
            os.link(outside, path)
        case "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))


def test_a_corrupt_record_says_where() -> None:
    error = CorruptRecord("x", path="/a", offset=7)
    assert (error.path, error.offset, error.exit_code) == ("/a", 7, 10)
