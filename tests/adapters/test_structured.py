"""Actions by a schema: what the model is asked, how it sees what it did, and what its replies become."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.adapters.models.structured import StructuredActions, _StreamedReport
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits, ModelFailed, ModelReply, ModelRequest
from agentrun.states import RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool
from agentrun.testing.stretch import FakeStretch


def action(name: str, **more: Any) -> ModelReply:
    return ModelReply(json.dumps({"next": {"action": name} | more}))


def test_a_loop_of_actions_calls_a_tool_and_reports() -> None:
    """# covers A4 A36: the next action is chosen knowing the result of the last one."""
    model = FakeModel(action("query", arguments={"sql": "x"}), action("report", text="It is done."))
    tool = FakeTool("query")
    stretch = FakeStretch("go")
    agent = LoopAgent(StructuredActions(model, may_ask=False), [tool], Limits(), "be careful")
    assert anyio.run(stretch.drive, agent) is RunStatus.COMPLETED
    assert tool.invocations[0].arguments == {"sql": "x"}
    assert stretch.report == "It is done."
    first, second = model.requests
    assert first.system.startswith("be careful")
    assert "does query" in first.system
    assert first.tools == ()
    assert [(message.role, message.calls) for message in second.messages] == [
        ("user", ()),
        ("assistant", ()),
        ("user", ()),
    ]
    assert json.loads(second.messages[1].text)["next"]["arguments"] == {"sql": "x"}
    assert "[Result of query]\nresult of op-2" in second.messages[2].text


def test_the_schema_allows_the_tools_there_are_and_nothing_else() -> None:
    model = FakeModel(action("report", text="x"))
    asked = StructuredActions(model, may_ask=True)
    anyio.run(_complete, asked, ModelRequest("", (), (FakeTool("query").spec,), "", (), {}))
    schema = model.requests[0].reply_schema
    assert schema
    forms = schema["properties"]["next"]["anyOf"]
    assert [form["properties"]["action"]["const"] for form in forms] == ["query", "ask_user", "report"]
    assert all(form["additionalProperties"] is False for form in forms)


def test_a_question_is_one_of_the_actions() -> None:
    reply = anyio.run(_complete, StructuredActions(FakeModel(action("ask_user", text="Which?")), may_ask=True))
    assert (reply.question, reply.text, reply.calls) == ("Which?", "", ())


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"next": 4}', '{"next": {"action": "report"}}'])
def test_what_is_no_action_is_asked_for_again(text: str) -> None:
    with pytest.raises(ModelFailed) as failed:
        anyio.run(_complete, StructuredActions(FakeModel(ModelReply(text)), may_ask=False))
    assert failed.value.retryable


def test_a_reply_that_was_cut_off_stays_so() -> None:
    cut = ModelReply('{"next": {"act', stop_reason="max_tokens")
    assert anyio.run(_complete, StructuredActions(FakeModel(cut), may_ask=False)) == cut


@given(st.text(), st.integers(1, 7), st.booleans(), st.sampled_from([None, 1]))
def test_the_text_of_a_report_streams_whatever_is_in_it(
    text: str, size: int, escaped: bool, indent: int | None
) -> None:
    whole = json.dumps({"next": {"action": "report", "text": text}}, ensure_ascii=escaped, indent=indent)
    report = _StreamedReport()
    pieces = [report.take(whole[at : at + size]) for at in range(0, len(whole), size)]
    assert "".join(pieces) == text


def test_the_text_of_another_action_does_not_stream() -> None:
    report = _StreamedReport()
    assert report.take(json.dumps({"next": {"action": "query", "arguments": {"text": "secret"}}})) == ""


async def _complete(model: StructuredActions, request: ModelRequest | None = None) -> ModelReply:
    async def on_text(text: str) -> None:
        await anyio.lowlevel.checkpoint()

    return await model.complete(request or ModelRequest("", (), (), "", (), {}), on_text)
