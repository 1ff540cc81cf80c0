"""JSON is written and read as the standard library does it, whichever of its parts do it."""

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.records import jsontext

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: Any) -> None:
    assert jsontext.line_of(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert jsontext.document_of(value) == json.dumps(value, ensure_ascii=False, indent=2)
    assert jsontext.ascii_line_of(value) == json.dumps(value, separators=(",", ":"))
    assert jsontext.ascii_document_of(value) == json.dumps(value, indent=2)


@given(VALUES, st.sampled_from(["", " ", "\n", "\r\n\t "]), st.sampled_from(["", "\n", " \n"]))
def test_what_is_read_is_what_json_reads(value: Any, before: str, behind: str) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=3)):
        assert jsontext.value_of(before + text + behind) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", '{"a":1}x', '{"a":1} {}', "{'a':1}", '{"a":01}', '"\n"', "\ufeff{}", "[1,]", "\xa0{}", "{}\xa0"],
)
def test_what_is_no_json_is_refused_in_the_same_words(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as theirs:
        json.loads(text) if not text.startswith("\ufeff") else json.JSONDecoder().decode(text)
    with pytest.raises(json.JSONDecodeError) as ours:
        jsontext.value_of(text)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf, {"a": [math.inf]}, object(), {"a": {1, 2}}])
def test_what_has_no_json_is_refused(value: Any) -> None:
    for write in (jsontext.line_of, jsontext.document_of, jsontext.ascii_line_of, jsontext.ascii_document_of):
        with pytest.raises((ValueError, TypeError)):
            write(value)


def test_what_json_cannot_hold_is_read_as_its_text() -> None:
    assert jsontext.value_of("[NaN,-Infinity,1e999,-1e999,1.5]") == ["NaN", "-Infinity", "1e999", "-1e999", 1.5]
    assert jsontext.value_of(f"[{'9' * 5000},7]") == ["9" * 5000, 7]


def test_what_is_no_json_is_refused_in_the_same_words_before_json_is_loaded() -> None:
    code = """if True:
        import sys
        from agentrun.records import jsontext
        for text in ('{"a": "b', '["', '{"a": 1,}', '[1, 2', '"\\\\u12', '{"a": nul'):
            for name in [name for name in sys.modules if name.startswith("json")]:
                del sys.modules[name]
            try:
                jsontext.value_of(text)
            except ValueError as error:
                print(type(error).__name__)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("JSONDecodeError\n" * 6, "")


# The parts that are used are no public names: another interpreter may have none, or such that are used otherwise.
WITHOUT = """
import json, sys, types
if sys.argv[1] == "missing":
    del sys.modules["json"], sys.modules["json.decoder"], sys.modules["json.encoder"], sys.modules["json.scanner"]
    sys.modules["_json"] = None
else:
    sys.modules["_json"] = types.SimpleNamespace(encode_basestring=0, make_encoder=0, make_scanner=lambda: 0)
from agentrun.records import jsontext
print(jsontext.value_of('{"a": [1, 1e999, "\\u00e4"]} '), ascii(jsontext.line_of({"a": ["\u00e4", 1]})))
"""


@pytest.mark.parametrize("parts", ["missing", "other"])
def test_an_interpreter_without_the_parts_does_the_same(parts: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, parts], capture_output=True, text=True, check=False)
    assert done.stdout == "{'a': [1, '1e999', 'ä']} '{\"a\":[\"\\xe4\",1]}'\n", done.stderr
