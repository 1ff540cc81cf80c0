"""The JSON of the tree: one line per record, valid UTF-8 whatever went in, and every unreadable line an ordinary error.

Covers A12, A15, B8 and case C18.
"""

import json
import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.errors import Denied, UsageError
from agentrun.records.codec import (
    LISTS,
    Seqs,
    check_version,
    decode,
    decode_document,
    decode_in_brief,
    encode_document,
    encode_line,
    without,
)

# Any text, lone surrogates included (Python's form of a file name or argument that is not UTF-8).
TEXT = st.text() | st.lists(st.sampled_from(["\ud800", "\udfff", "\udc80", "a", "\u2028", "\0", '"'])).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)
DOCS = st.dictionaries(TEXT, VALUES)


@pytest.mark.slow
@given(DOCS)
@settings(max_examples=50)
def test_what_is_written_is_read_back_from_one_line_of_utf8(doc: dict[str, object]) -> None:
    line = encode_line(doc)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    line.decode("utf-8", "strict")
    # (To JSON, two halves of a surrogate pair that happen to meet are one character.)
    assert decode(line) == json.loads(json.dumps(doc))
    assert json.loads(line) == decode(line)


@pytest.mark.slow
@given(DOCS)
@settings(max_examples=50)
def test_a_document_is_read_back_and_is_written_the_same_again(doc: dict[str, object]) -> None:
    data = encode_document(doc)
    data.decode("utf-8", "strict")
    assert data.endswith(b"\n")
    assert decode(data) == json.loads(json.dumps(doc))
    assert encode_document(decode(data)) == data


@pytest.mark.parametrize(
    "text",
    ["\u2028", "\u2029", "\x85", "\x00", "\x1b[2J", "\x7f", "\r", "\n", "\r\n", "\v\f\x1c\x1d\x1e", "\ufeff", "\ufffe",
     "\ud800", "\udfff\ud800", "a\udc80b", "\U0010ffff", "👩‍👩‍👧", "\u202eabc", '"', "\\", "\\ud800"],
)  # fmt: skip
def test_one_record_stays_one_line_whatever_its_text(text: str) -> None:
    line = encode_line({"text": text, text: 1})
    assert line.split(b"\n")[1:] == [b""]
    assert decode(line) == {"text": text, text: 1}


NO_JSON = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "bytes": b"x",
    "set": {1},
    "object": object(),
    "long": 10**5000,
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_what_json_cannot_hold_is_refused_before_it_is_written(value: object) -> None:
    for encode in (encode_line, encode_document):
        with pytest.raises(UsageError, match="cannot be stored as JSON"):
            encode({"value": [value]})


@pytest.mark.slow
def test_what_is_nested_too_deep_is_refused_before_it_is_written() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    for encode in (encode_line, encode_document):
        with pytest.raises(UsageError, match="cannot be stored as JSON"):
            encode({"value": value})
    while value:
        value = value.pop()  # type: ignore[assignment] # taken apart step by step, as Python would by recursion


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"\n", b"{", b"}", b"{}{}", b"{} x", b"[]", b"null", b"true", b"1", b'"text"', b"{'a':1}",
        b'{"a":1,}',
        b'{"a"}', b'{"a":}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":0x1}', b'{a:1}', b'{"a":"\n"}',
        b'{"a":"\x00"}', b"\x00" * 300, b'{"a":"\\u12"}', b'{"a":"\\x"}', b"\xff\xfe{}", b'{"a":"\xff"}',
        b'{"a":"\xc3"}',
        b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\x80"}', b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'{"a":nan}',
        b'{"a":inf}',
        b'{"a":-}', b"{" * 1000, b'{"a":' * 100_000, b"[" * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        # A number that is too long for the first parser, and then something too deep for the second.
        b'{"n":' + b"9" * 5000 + b',"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"n":' + b"9" * 5000 + b',"a":}', b"9" * 5000,
    ],
    ids=lambda data: f"{data[:30]!r}-{len(data)}",
)  # fmt: skip
def test_whatever_is_no_json_object_is_an_ordinary_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the parser's
        decode(data)


@pytest.mark.parametrize("length", [10, 4298, 4299, 4300, 4301, 5000, 100_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_any_length_is_kept_to_the_last_digit(sign: str, length: int) -> None:
    number = sign + "9" * length
    doc = decode(f'{{"seq":7,"n":{number},"list":[{number}]}}'.encode())
    assert doc["seq"] == 7
    kept = doc["n"] if isinstance(doc["n"], str) else encode_line({"n": doc["n"]})[5:-2].decode()
    assert kept == number
    assert decode(encode_line(doc)) == doc


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1E+400"])
def test_a_number_that_json_or_python_has_not_is_kept_as_its_text(word: str) -> None:
    doc = decode(f'{{"n":{word},"list":[{word},1.5]}}'.encode())
    assert doc == {"n": word, "list": [word, 1.5]}
    assert decode(encode_line(doc)) == decode(encode_document(doc)) == doc


def test_of_fields_with_the_same_name_the_last_one_counts() -> None:
    assert decode(b'{"seq":1,"seq":2,"seq":3}') == {"seq": 3}


def test_what_was_decoded_can_be_written_as_a_document_again() -> None:
    # A document is written with an indent, which another part of Python does than the one that writes lines.
    for depth in (10, 100, 200):
        data = b'{"a":' * depth + b"1" + b"}" * depth
        assert decode(encode_document(decode(data))) == decode(data)
        assert decode(encode_line(decode(data))) == decode(data)


@pytest.mark.parametrize("version", [2, 99, 1.5, "1", "2", None, [1], {"major": 1}])
def test_a_newer_format_is_refused_for_writing_in_words_that_say_what_to_do(version: object) -> None:
    with pytest.raises(Denied, match=r"/x/session\.json has format .*read-only") as caught:
        check_version({"formatVersion": version}, "/x/session.json")
    assert "newer agentrun" in str(caught.value.hint)


@pytest.mark.parametrize("doc", [{"formatVersion": 1}, {"formatVersion": 0}, {}])
def test_an_older_format_may_be_written(doc: dict[str, object]) -> None:
    check_version(doc, "/x/session.json")


def test_fields_that_are_not_known_are_told_apart() -> None:
    assert without({"a": 1, "b": 2, "c": 3}, frozenset({"a", "c", "d"})) == {"b": 2}


# Very many numbers.


@pytest.mark.parametrize(
    "numbers",
    [(), (1,), (1, 2, 3), (3, 2, 1), (1, 1, 2), (5, 6, 9, 10, 11, 2, 3), tuple(range(300)), (-2, -1, 0, 7)],
)
def test_numbers_are_what_was_put_in(numbers: tuple[int, ...]) -> None:
    found = Seqs(numbers)
    assert (tuple(found), len(found), bool(found)) == (numbers, len(numbers), bool(numbers))
    assert found == numbers
    assert numbers == found
    assert found == Seqs(numbers[:2]) + numbers[2:]
    assert found != (*numbers, 99)
    assert found != list(numbers)
    assert [number for number in range(-5, 400) if number in found] == sorted({*numbers})
    for count in (0, 1, 2, 5, 1_000):
        assert found.last(count) == numbers[len(numbers) - min(count, len(numbers)) :]


def test_a_long_list_of_a_document_comes_apart_and_nothing_else_does() -> None:
    numbers = [*range(1, 20_000), 5, *range(30_000, 40_000)]
    doc = {"deliveredInputs": [], "text": '\n  "returnedInputs": [1, 2]' * 20, "returnedInputs": numbers}
    rest, apart = decode_document(encode_document(doc), LISTS)
    assert rest == doc | {"returnedInputs": []}
    assert apart == {"returnedInputs": Seqs(numbers)}
    for other in (
        {"returnedInputs": [1, 2, 3]},  # short
        {"extra": {"returnedInputs": numbers}},
        {"returnedInputs": [*numbers, 1.5]},
        {"returnedInputs": [*numbers, -1]},
        {"returnedInputs": [*numbers, 0]},
        {"returnedInputs": [*numbers, 1 << 53]},
        {"returnedInputs": [*numbers, "7"]},
        {"returnedInputs": [*numbers, [7]]},
    ):
        assert decode_document(encode_document(other), LISTS) == (other, {})
        assert decode_in_brief(encode_line({"seq": 7} | other))["seq"] == 7
    assert decode_document(encode_line(doc), LISTS) == (doc, {})


@pytest.mark.parametrize("broken", [b"1 2", b"007", b"1,,2", b"+1", b"1_0", b"9" * 5_000, b",", b"1,\n"])
def test_what_is_no_list_of_numbers_is_no_document(broken: bytes) -> None:
    long = b",\n    ".join(b"%d" % number for number in range(1, 20_000))
    data = b'{\n  "returnedInputs": [' + long + b", " + broken + b"]\n}\n"
    if broken.isdigit() and not broken.startswith(b"0"):
        assert decode_document(data, LISTS)[0] == decode(data)
        return
    for decoded in (lambda: decode_document(data, LISTS), lambda: decode_in_brief(data.replace(b"\n", b""))):
        with pytest.raises(ValueError, match=r"."):
            decoded()


def test_of_very_many_numbers_each_takes_little_more_than_its_text() -> None:
    """Covers promise 16."""
    count = 50_000
    data = encode_document({"returnedInputs": [*range(1, count + 1)]})
    tracemalloc.start()
    try:
        _, apart = decode_document(data, LISTS)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    assert len(apart["returnedInputs"]) == count
