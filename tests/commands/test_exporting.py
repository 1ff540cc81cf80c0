"""What is exported of a run is the truth about it, told once and in order, whatever became of its calls."""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.commands.exporting import exported
from agentrun.commands.names import Target
from agentrun.records.event import Event
from agentrun.records.exported import Export
from agentrun.render.exports import FORMS, form_of, writer_of
from agentrun.states import EventType as E
from agentrun.store.inbox import Order
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

Doc = dict[str, Any]


def export_of(session: SessionDir, run_id: str | None = None) -> Export:
    return exported(Target(session, run_id), [])


def written(form: str, session: SessionDir, run_id: str | None = None) -> bytes:
    return b"".join(writer_of(form)(export_of(session, run_id)))


def messages(session: SessionDir, run_id: str | None = None) -> list[Doc]:
    found: list[Doc] = json.loads(written("openai", session, run_id))
    return found


def reply(executor: Executor, operation_id: str, turn_id: str, text: str, *calls: str) -> None:
    """A model request, and a reply that asks for `calls`."""
    executor.append(E.MODEL_REQUEST_STARTED, operationId=operation_id, turnId=turn_id, model="m", attempt=1)
    asked = [{"id": call, "name": "export", "arguments": {"week": call}} for call in calls]
    usage = {"inputTokens": 10, "outputTokens": 5}
    executor.append(
        E.MODEL_REQUEST_FINISHED, operationId=operation_id, status="succeeded", text=text, toolCalls=asked,
        stopReason="end_turn", usage=usage, attempt=1,
    )  # fmt: skip


def register(executor: Executor, operation_id: str, call: str, effect: str = "write") -> None:
    executor.append(
        E.TOOL_REGISTERED, operationId=operation_id, turnId="turn-1", toolCallId=call, toolName="export",
        arguments={"week": call}, effect=effect,
    )  # fmt: skip


def start(executor: Executor, operation_id: str) -> None:
    executor.append(E.TOOL_STARTED, operationId=operation_id, toolName="export", attempt=1)


def finish(executor: Executor, operation_id: str, status: str, **payload: object) -> None:
    executor.append(E.TOOL_FINISHED, operationId=operation_id, status=status, attempt=1, **payload)


@pytest.fixture
def stopped(session: SessionDir) -> SessionDir:
    """A run that was stopped in a turn of five calls: done, failed, killed half way, skipped, never registered."""
    executor = Executor(session, trees.accept(session, "export them").run_id)
    executor.deliver()
    reply(executor, "op-1", "turn-1", "I begin.", "done", "failed", "killed", "skipped", "unregistered")
    for operation_id, call in (("op-2", "done"), ("op-3", "failed"), ("op-4", "killed"), ("op-5", "skipped")):
        register(executor, operation_id, call)
    for operation_id in ("op-2", "op-3", "op-4"):
        start(executor, operation_id)
    finish(executor, "op-3", "failed", error="exit 3", result="oops")
    finish(executor, "op-2", "succeeded", result="7 rows")
    trees.add(session, "run-1", "steer", "only new ones")
    trees.cancel(session, "run-1", reason="enough")
    finish(executor, "op-4", "cancelled", error="stopped by the user", mayHaveEffects=True)
    finish(executor, "op-5", "skipped", error="the run was stopped")
    executor.wind_down()
    return session


def test_each_call_is_followed_by_one_truthful_result(stopped: SessionDir) -> None:
    # covers A49 A52
    found = messages(stopped)
    assert [message["role"] for message in found] == ["user", "assistant", *["tool"] * 5, "user", "system"]
    calls = found[1]["tool_calls"]
    assert [call["id"] for call in calls] == ["done", "failed", "killed", "skipped", "unregistered"]
    assert [message["tool_call_id"] for message in found[2:7]] == [call["id"] for call in calls]
    assert [json.loads(call["function"]["arguments"]) for call in calls[:2]] == [{"week": "done"}, {"week": "failed"}]
    done, failed, killed, skipped, unregistered = [message["content"] for message in found[2:7]]
    assert done == "7 rows"
    assert "failed: exit 3" in failed
    assert "not a result" in failed
    assert "may have had effects" in killed
    assert "was not started" in skipped
    assert "was not started" in unregistered
    assert found[7]["content"] == "only new ones"
    assert "unresolved: op-4" in found[8]["content"]


def test_what_was_found_out_later_stands_with_its_call(stopped: SessionDir) -> None:
    run_dir = stopped.run("run-1")
    with writing(stopped) as writer:
        payload = {"operationId": "op-4", "status": "succeeded", "evidence": "probe", "actor": trees.ACTOR}
        run_dir.append_as_anyone(writer, E.OPERATION_LATE_RESULT, payload | {"result": "12 rows"})
    killed = messages(stopped)[4]
    assert killed["tool_call_id"] == "killed"
    assert "12 rows" in killed["content"]
    assert "#### export (op-4: succeeded" in written("markdown", stopped).decode()


def test_what_was_found_out_in_a_later_turn_stands_with_its_call(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    reply(executor, "op-1", "turn-1", "I begin.", "c")
    register(executor, "op-2", "c")
    start(executor, "op-2")
    finish(executor, "op-2", "timed_out", error="after 30 s", mayHaveEffects=True)
    reply(executor, "op-3", "turn-2", "I wait.")
    executor.append(E.OPERATION_RECONCILED, operationId="op-2", status="succeeded", evidence="probe", result="12 rows")
    executor.die()
    found = messages(session)
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "assistant"]
    assert "12 rows" in found[2]["content"]


def test_the_messages_are_what_the_openai_package_takes(stopped: SessionDir) -> None:
    types = pytest.importorskip("openai.types.chat")
    pydantic = pytest.importorskip("pydantic")
    trees.completed(stopped, "and again", "All of it.\n")
    found = written("openai", stopped)
    pydantic.TypeAdapter(list[types.ChatCompletionMessageParam]).validate_json(found, strict=True)


def test_a_trajectory_is_what_the_models_of_the_format_take(stopped: SessionDir) -> None:
    trees.completed(stopped, "and again", "All of it.\n")
    found = json.loads(written("atif", stopped))
    steps = found["steps"]
    assert [step["source"] for step in steps] == ["user", "agent", "user", "system", "user", "agent", "agent"]
    calls = {result["source_call_id"]: result for result in steps[1]["observation"]["results"]}
    assert [call["tool_call_id"] for call in steps[1]["tool_calls"]] == list(calls)
    assert calls["done"]["extra"]["status"] == "succeeded"
    assert (calls["killed"]["extra"]["status"], calls["killed"]["extra"]["unresolved"]) == ("cancelled", True)
    assert calls["unregistered"]["extra"]["status"] == "never started"
    assert found["final_metrics"] == {"total_prompt_tokens": 20, "total_completion_tokens": 10, "total_steps": 7}
    assert steps[1]["metrics"] == {"prompt_tokens": 10, "completion_tokens": 5}
    fork = json.loads(
        written("atif", Tree(str(Path(stopped.directory.path).parents[3]), "ann").fork_session(stopped, 2))
    )
    assert [step["is_copied_context"] for step in fork["steps"]] == [True, True]
    atif = pytest.importorskip("atif")
    for each in (found, fork):
        atif.Trajectory.model_validate(each, strict=True)


def spans_of(session: SessionDir, run_id: str | None = None) -> list[Doc]:
    (resource,) = json.loads(written("otlp", session, run_id))["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return list(scope["spans"])


def test_a_trace_has_a_span_for_the_run_each_request_and_each_call(stopped: SessionDir) -> None:
    spans = spans_of(stopped)
    run = spans[-1]
    assert [span["name"] for span in spans] == ["chat m", *["execute_tool export"] * 4, "invoke_agent"]
    assert all(re.fullmatch("[0-9a-f]{32}", span["traceId"]) for span in spans)
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in spans)
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert {span["traceId"] for span in spans} == {run["traceId"]}
    assert {span["parentSpanId"] for span in spans[:-1]} == {run["spanId"]}
    assert "parentSpanId" not in run
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= int(run["endTimeUnixNano"])
        keys = {each["key"] for each in span["attributes"]}
        assert {"gen_ai.operation.name", "gen_ai.conversation.id"} <= keys
    assert [span.get("status", {}).get("code") for span in spans] == [None, None, 2, 2, 2, 2]
    chat = {each["key"]: each["value"] for each in spans[0]["attributes"]}
    assert chat["gen_ai.usage.input_tokens"] == {"intValue": "10"}
    (reply,) = json.loads(chat["gen_ai.output.messages"]["stringValue"])
    assert [part["type"] for part in reply["parts"]] == ["text", *["tool_call"] * 5]
    assert spans_of(stopped) == spans


def test_a_trace_is_what_the_protocol_takes(stopped: SessionDir) -> None:
    trace_pb2 = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    trees.completed(stopped, "and again", "All of it.\n")
    text = written("otlp", stopped).decode()
    # The mapping of protobuf has bytes in base 64; OTLP has the ids in hexadecimal, which is what stands there.
    based = re.sub(
        r'"(traceId|spanId|parentSpanId)":"([0-9a-f]+)"',
        lambda found: f'"{found[1]}":"{base64.b64encode(bytes.fromhex(found[2])).decode()}"',
        text,
    )
    parsed = json_format.Parse(based, trace_pb2.TracesData())
    spans = parsed.resource_spans[0].scope_spans[0].spans
    assert {len(span.trace_id) for span in spans} == {16}
    assert {len(span.span_id) for span in spans} == {8}
    assert len({span.trace_id for span in spans}) == 2


def test_a_run_that_a_call_began_is_linked_with_the_call(tree: Tree, session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    reply(executor, "op-1", "turn-1", "", "c")
    register(executor, "op-2", "c")
    start(executor, "op-2")
    executor.die()
    child = tree.create_session(session_id="s2")
    parent = {"sessionId": "s1", "runId": "run-1", "operationId": "op-2"}
    trees.accept(child, order=Order(parent_run=parent))
    call = spans_of(session)[1]
    assert spans_of(child)[0]["links"] == [{"traceId": call["traceId"], "spanId": call["spanId"]}]


def test_a_report_is_told_once_with_what_agentrun_added(session: SessionDir) -> None:
    trees.completed(session, "go", "ok\n\n## Gaps\n\n* op-2 failed\n")
    assert messages(session) == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "ok\n\n## Gaps\n\n* op-2 failed\n"},
    ]
    text = written("markdown", session).decode()
    assert text.count("ok\n") == 1
    assert "### Report (turn-1, m, " in text


def test_a_report_that_no_reply_became_is_told_as_well(session: SessionDir) -> None:
    trees.completed(session, "go", "Something else.\n")
    assert [message["content"] for message in messages(session)] == ["go", "ok", "Something else.\n"]


def test_a_question_is_told_once_and_a_permission_is_no_part_of_the_conversation(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask("question-1")
    trees.answer(session, "run-1", "week 12")
    executor.deliver("turn-2")
    executor.ask_model("op-2", "turn-2")
    executor.append(E.RUN_WAITING_INPUT, questionId="question-2", kind="approval", operationId="op-3", text="May it?")
    with writing(session):
        pass  # it completes what is missing: the line of the question
    assert [message["content"] for message in messages(session)] == ["go", "ok", "week 12", "ok"]
    text = written("markdown", session).decode()
    for words in ("Which week?", "week 12", "May it?"):
        assert text.count(words) == 1
    assert "This run is not over: it is waiting_input." in text
    executor.die()


def test_one_run_is_told_without_the_others_and_a_fork_with_what_it_copied(tree: Tree, session: SessionDir) -> None:
    trees.completed(session, "first", "One.\n")
    trees.completed(session, "second", "Two.\n")
    assert [message["content"] for message in messages(session, "run-2")] == ["second", "ok", "Two.\n"]
    whole = json.loads(written("json", session, "run-2"))
    assert [message["seq"] for message in whole["messages"]] == [3, 4]
    assert [run["run"]["runId"] for run in whole["runs"]] == ["run-2"]
    fork = tree.fork_session(session, 2)
    trees.completed(fork, "third", "Three.\n")
    assert [message["content"] for message in messages(fork)] == ["first", "One.\n", "third", "ok", "Three.\n"]
    assert "message 1, s1/run-1," in written("markdown", fork).decode()


def test_the_json_has_every_stored_line_as_it_is(stopped: SessionDir) -> None:
    trees.completed(stopped, "and again")
    whole = json.loads(written("json", stopped))
    directory = Path(stopped.directory.path)
    stored = [json.loads(line) for line in (directory / "messages.jsonl").read_bytes().splitlines()]
    assert whole["messages"] == stored
    assert whole["session"] == json.loads((directory / "session.json").read_bytes())
    for run in whole["runs"]:
        path = directory / "runs" / run["run"]["runId"]
        assert run["operations"] == [json.loads(line) for line in (path / "operations.jsonl").read_bytes().splitlines()]
        assert run["report"] == ((path / "report.md").read_text() if (path / "report.md").exists() else None)


def test_nothing_in_a_text_can_end_the_block_that_it_stands_in(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    reply(executor, "op-1", "turn-1", "", "c")
    register(executor, "op-2", "c", "read")
    start(executor, "op-2")
    finish(executor, "op-2", "succeeded", result="````\n# not a heading\n```")
    executor.die()
    text = written("markdown", session).decode()
    assert "`````\n````\n# not a heading\n```\n`````" in text


@pytest.mark.parametrize("form", list(FORMS))
def test_a_damaged_line_hides_no_other_and_is_told(form: str, session: SessionDir) -> None:
    # case C1
    trees.completed(session, "first", "One.\n")
    trees.completed(session, "second", "Two.\n")
    path = trees.run_path(session, "run-1", "operations.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[3] = b"\0" * len(lines[3])
    path.write_bytes(b"\n".join(lines))
    damage: list[str] = []
    pieces = b"".join(writer_of(form)(exported(Target(session.another(), None), damage)))
    assert b"Two." in pieces
    assert len(damage) == 1
    assert "run-1/operations.jsonl: damaged record at byte" in damage[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", list(FORMS))
def test_a_long_run_needs_no_more_memory_than_a_turn_of_it(form: str, session: SessionDir) -> None:
    # case C17
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.die()
    turns = 300
    path = trees.run_path(session, "run-1", "operations.jsonl")
    last = executor.run_dir.events.last_seq()
    with path.open("ab") as file:
        for number, event in enumerate(long_turns(turns, "x" * 50_000), start=last + 1):
            line = Event("s1", "run-1", number, event[0], "2026-01-02T03:04:05.678Z", 1, event[1]).to_doc()
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    size = 0
    with recording(session) as writer:
        session.run("run-1").rewrite_snapshot(writer)
    tracemalloc.start()
    try:
        for piece in writer_of(form)(export_of(session.another())):
            size += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > turns * 50_000
    assert peak < 5_000_000


def long_turns(count: int, output: str) -> Iterator[tuple[str, Doc]]:
    for number in range(1, count + 1):
        turn, model, tool = f"turn-{number}", f"op-{2 * number}", f"op-{2 * number + 1}"
        call = {"id": f"c{number}", "name": "q", "arguments": {}}
        yield "model.request.started", {"operationId": model, "turnId": turn, "model": "m", "attempt": 1}
        yield "model.request.finished", {"operationId": model, "status": "succeeded", "text": "t", "toolCalls": [call]}
        names = {"operationId": tool, "toolCallId": f"c{number}", "toolName": "q"}
        yield "tool.registered", names | {"turnId": turn, "arguments": {}, "effect": "read"}
        yield "tool.started", names | {"attempt": 1}
        yield "tool.finished", {"operationId": tool, "status": "succeeded", "result": output, "attempt": 1}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.md", "markdown"),
        ("A.MD", "markdown"),
        ("a.json", "json"),
        ("a.openai.json", "openai"),
        ("a.txt", None),
        ("a", None),
    ],
)
def test_the_name_of_a_file_says_its_form(name: str, form: str | None) -> None:
    assert form_of(name) == form
