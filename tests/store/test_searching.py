"""Searching the bytes of a log: every spelling of JSON, wherever a piece of the file ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.errors import UsageError
from agentrun.records.codec import Doc, encode_line
from agentrun.store import searching
from agentrun.store.disk import Directory
from agentrun.store.log import Damage, Log
from agentrun.store.needle import LONGEST, needle
from agentrun.store.searching import records_with


def _found(path: Path, text: str) -> list[int]:
    """The numbers of the records that have it."""
    wanted = needle(text)
    log = Log(Directory.root(str(path)), "log.jsonl")
    docs: list[Doc] = []
    for entry in records_with(log, lambda doc: doc, wanted):
        assert not isinstance(entry, Damage)
        docs.append(entry)
    log.close()
    return [doc["seq"] for doc in docs if wanted.in_text.search(doc["text"])]


def _log(path: Path, *lines: bytes) -> None:
    (path / "log.jsonl").write_bytes(b"".join(lines))
    (path / "log.jsonl").chmod(0o600)


TEXTS = [
    'say "no"',
    "back\\slash",
    "a/b",
    "two\nlines\tand tab",
    "bell\x07 \x1b[31m",
    "Größe",
    "为什么",
    "🙂 done",
    "\udc80 raw",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_spelling_of_json_is_found(tmp_path: Path, text: str) -> None:
    # Ours, all of it in escapes with capital digits, and every character as an escape.
    spelled = "".join(f"\\u{ord(unit):04X}" if ord(unit) < 0x10000 else json.dumps(unit)[1:-1] for unit in text)
    _log(
        tmp_path,
        encode_line({"seq": 1, "text": f"so {text} it is"}),
        encode_line({"seq": 2, "text": "nothing of it"}),
        json.dumps({"seq": 3, "text": f"so {text}"}).encode("ascii") + b"\n",
        f'{{"seq":4,"text":"{spelled}"}}\n'.encode("ascii"),
        json.dumps({"seq": 5, "text": text}).replace("/", "\\/").encode("ascii") + b"\n",
    )
    assert _found(tmp_path, text) == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "stored"),
    [("REVENUE", "revenue"), ("revenue", "ReVeNuE"), ("größe", "GRÖSSE GRÖßE"), ("ΣΟΦΟΣ", "σοφος σοφός σοφοσ")],
)
def test_capitals_make_no_difference(tmp_path: Path, text: str, stored: str) -> None:
    _log(tmp_path, encode_line({"seq": 1, "text": stored}), json.dumps({"seq": 2, "text": stored}).encode() + b"\n")
    assert _found(tmp_path, text) == [1, 2]


def test_what_only_looks_like_it_in_the_file_is_not_found(tmp_path: Path) -> None:
    _log(tmp_path, encode_line({"seq": 1, "text": "a literal \\n and \\u0041"}), encode_line({"seq": 2, "text": "seq"}))
    assert _found(tmp_path, "literal \n") == []
    assert _found(tmp_path, "and A") == []
    assert _found(tmp_path, "seq") == [2]


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text(alphabet='aAb1"\\\n/é为🙂', max_size=12), max_size=8),
    text=st.text(alphabet='aAb1"\\\n/é为🙂', min_size=1, max_size=4),
    chunk=st.integers(min_value=1, max_value=40),
)
def test_it_finds_what_a_look_at_every_text_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], text: str, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    _log(path, *(encode_line({"seq": seq, "text": each}) for seq, each in enumerate(texts)))
    with pytest.MonkeyPatch.context() as patch:
        # Pieces so small that every text stands across several of them.
        patch.setattr(searching, "_CHUNK", chunk)
        found = _found(path, text)
    assert found == [seq for seq, each in enumerate(texts) if text.lower() in each.lower()]


def test_damage_is_named_and_hides_no_other(tmp_path: Path) -> None:
    """case: a damaged line in the middle, and a torn one at the end that was acknowledged to nobody."""
    good = encode_line({"seq": 1, "text": "the needle"})
    _log(tmp_path, good, b'{"seq":2,"text":"the needle\n', good, b'{"seq":4,"text":"the needle"}')
    log = Log(Directory.root(str(tmp_path)), "log.jsonl")
    found = list(records_with(log, lambda doc: doc, needle("needle")))
    assert [each.offset if isinstance(each, Damage) else each["seq"] for each in found] == [1, len(good), 1]


@pytest.mark.parametrize("text", ["", "x" * (LONGEST + 1)])
def test_a_text_that_cannot_be_searched_for(text: str) -> None:
    with pytest.raises(UsageError):
        needle(text)


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("Refund of Week 17", b"refund of week 17"),
        ('he said "no, never"', b"no, never"),
        ("a/b\\c/de", b"de"),
        ("x", None),
        ("为什么", "为什么".encode()),
        ("Größe", b"gr"),
        ("K\u212a", None),
    ],
)
def test_what_is_looked_for_first_is_the_longest_part_with_one_spelling(text: str, core: bytes | None) -> None:
    assert needle(text).core == core


def test_a_line_is_found_beside_others_that_have_its_core_or_escapes(tmp_path: Path) -> None:
    _log(
        tmp_path,
        encode_line({"seq": 1, "text": "no, never"}),
        encode_line({"seq": 2, "text": 'HE SAID "NO, NEVER"'}),
        *(encode_line({"seq": seq, "text": "x" * 1000}) for seq in range(3, 1000)),
        b'{"seq":1000,"text":"he s\\u0061id \\"no, never\\""}\n',
        encode_line({"seq": 1001, "text": 'so he said "no, never" again'}),
    )
    assert _found(tmp_path, 'he said "no, never"') == [2, 1000, 1001]


@pytest.mark.parametrize("text", ["KÖLN am Rhein", "выручка", "为什么 17", "2026-11-30"])
def test_a_text_is_found_in_the_one_piece_of_a_long_log_that_has_it(tmp_path: Path, text: str) -> None:
    """Pieces without its letters are passed over; one with escapes, or with it in other letters, is not."""
    plain = [encode_line({"seq": seq, "text": "x" * 1000}) for seq in range(200)]
    _log(
        tmp_path,
        *plain,
        encode_line({"seq": 1000, "text": f"so {text} it is"}),
        *plain,
        json.dumps({"seq": 1001, "text": text.swapcase()}).encode("ascii") + b"\n",
        *plain,
        encode_line({"seq": 1002, "text": text.lower()}),
    )
    assert _found(tmp_path, text) == [1000, 1001, 1002]
