"""The documents of `--json`: complete, one line each, and safe even on a terminal."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrun.errors import Ambiguous, CorruptRecord, SlotTaken
from agentrun.records.views import SessionView
from agentrun.render.json import error_doc, json_line, row_doc, run_doc, session_doc


def test_a_run(review: Any) -> None:
    doc = json.loads(json_line(run_doc(review.detail("the report"), review.events)))
    assert list(doc) == ["run", "operations", "messages", "inputs", "report", "children"]
    assert doc["run"]["status"] == "completed"
    assert doc["run"]["executor"] == "none"
    assert [line["seq"] for line in doc["operations"]] == list(range(1, len(review.events) + 1))
    assert doc["operations"][0]["type"] == "run.accepted"
    assert doc["messages"] == [message.to_doc() for message in review.messages]
    assert doc["inputs"][2] == {"messageSeq": 4, "state": "delivered", "turnId": "turn-3", "reason": None}
    assert doc["report"] == "the report"


def test_a_run_without_its_events_has_folded_operations(review: Any) -> None:
    operations = run_doc(review.detail())["operations"]
    assert [each["operationId"] for each in operations] == ["op-1", "op-2", "op-3", "op-4", "op-5"]
    assert operations[2]["attempt"] == 2


def test_a_session_and_a_row(review: Any, story: Callable[..., Any]) -> None:
    doc = session_doc(SessionView(review.session(), (review.view(),)))
    assert doc["session"]["sessionId"] == "session-0r5k"
    assert [run["runId"] for run in doc["runs"]] == ["run-1"]
    row = row_doc(review.row())
    assert row["session"] == doc["session"]
    assert row["run"] == doc["runs"][0]
    assert row_doc(review.row()._replace(newest=None))["run"] is None


def test_errors() -> None:
    assert error_doc(SlotTaken("busy", session_id="s", run_id="run-3")) == {
        "error": {"code": "conflict", "message": "busy", "sessionId": "s", "runId": "run-3"}
    }
    assert error_doc(Ambiguous("two", ["a", "b"], hint="say more"))["error"] == {
        "code": "not_found", "message": "two", "sessionId": None, "runId": None,
        "hint": "say more", "candidates": ["a", "b"],
    }  # fmt: skip
    damaged = error_doc(CorruptRecord("bad", path="messages.jsonl", offset=12))["error"]
    assert (damaged["code"], damaged["path"], damaged["offset"]) == ("damaged", "messages.jsonl", 12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(st.characters()))
def test_stored_text_is_unchanged_and_on_one_safe_line(review: Any, text: str) -> None:
    line = json_line(row_doc(review.row(text)))
    assert json.loads(line)["session"]["title"] == text
    assert line.decode("utf-8").splitlines(keepends=True) == [line.decode("utf-8")]
    assert not set(line.decode("utf-8")) & set("\x1b\x7f\x85\x9b\u202e\u2028\u200b\ufeff")
