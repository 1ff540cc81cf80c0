"""What a model sees stays within bounds: history is summarised, never edited, and no call loses its result.

# covers A13 A20 B47
"""

from __future__ import annotations

import anyio
import pytest

from agentrun.agent import pauses
from agentrun.agent.compaction import INSTRUCTION, tokens_of
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import ChatMessage, Conversation, Limits, Model, ModelFailed, ModelReply, ToolCall
from agentrun.records.codec import Doc
from agentrun.records.message import COMPACT, Message
from agentrun.states import EventType, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, scripted
from agentrun.testing.stretch import FakeStretch

E = EventType
LONG = "word " * 100  # 125 tokens, as they are estimated


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 0.0)


def agent(model: Model, *tools: FakeTool, above: int | None = 100) -> LoopAgent:
    return LoopAgent(model, tools, Limits(compact_above_tokens=above), "")


def drive(stretch: FakeStretch, driven: LoopAgent) -> RunStatus:
    return anyio.run(stretch.drive, driven)


def before(*texts: str) -> Conversation:
    roles = ("user", "assistant")
    said = [
        Message(n, "session-test", "run-0", roles[(n - 1) % 2], None, text, "") for n, text in enumerate(texts, start=1)
    ]
    return Conversation(said, {})


def covers(stretch: FakeStretch) -> list[Doc]:
    return [event.payload["covers"] for event in stretch.events if event.type == E.RUN_COMPACTED]


def test_a_history_that_is_too_long_is_summarised_before_the_model_is_asked() -> None:
    much = LONG[:380]
    stretch = FakeStretch("now", conversation=before(much, "an answer that is longer", "and more"))
    model = FakeModel(ModelReply("the summary"), ModelReply("report"))
    assert drive(stretch, agent(model)) is RunStatus.COMPLETED
    asked, then = model.requests
    assert much in asked.messages[0].text
    assert asked.messages[0].text.endswith(INSTRUCTION)
    assert (asked.tools, asked.last_input) == ((), INSTRUCTION)
    # One pass takes what has room; the rest is shown as it is.
    assert covers(stretch) == [{"messageSeq": 1, "runId": None, "eventSeq": None}]
    assert [message.text for message in then.messages] == [
        "[Summary of what was said before]\nthe summary",
        "an answer that is longer",
        "and more",
        "now",
    ]
    types = stretch.types()
    begin = types.index(E.RUN_COMPACTING)
    assert types[begin : begin + 4] == [
        E.RUN_COMPACTING, E.MODEL_REQUEST_STARTED, E.MODEL_REQUEST_FINISHED, E.RUN_COMPACTED,
    ]  # fmt: skip
    assert types.index(E.INPUT_DELIVERED) > begin, "nothing is delivered with the request for a summary"
    assert (stretch.run.usage["turns"], stretch.run.usage["modelRequests"]) == (1, 2)
    assert stretch.drafts == {"op-2": "some "}, "a summary is no draft of a report"


def test_a_history_that_fits_is_left_alone() -> None:
    stretch = FakeStretch(conversation=before("short"))
    assert drive(stretch, agent(FakeModel(ModelReply("report")))) is RunStatus.COMPLETED
    assert E.RUN_COMPACTING not in stretch.types()


def test_a_run_that_grows_too_long_summarises_its_own_turns_and_orphans_no_call() -> None:
    stretch = FakeStretch("the task")
    big = FakeTool("big", effect="read")
    replies = [ModelReply(LONG, (ToolCall(f"c{n}", "big", {"n": n}),)) for n in range(3)]
    model = FakeModel(
        replies[0], replies[1], ModelReply("so far"), replies[2], ModelReply("so far 2"), ModelReply("end")
    )
    assert drive(stretch, agent(model, big, above=200)) is RunStatus.COMPLETED
    for request in model.requests:
        assert_no_orphans(request.messages)
    summaries = [request for request in model.requests if request.last_input == INSTRUCTION]
    assert len(summaries) == 2
    assert 'Assistant calls big {"n": 0}' in summaries[0].messages[0].text
    assert "Result of big: result of op-2" in summaries[0].messages[0].text
    assert "[Summary of what came before]\nso far" in summaries[1].messages[0].text
    last = [message.text for message in model.requests[-1].messages]
    assert last[:2] == ["[Summary of what was said before]\nso far 2", "the task"]
    assert len([text for text in last if text == LONG.strip()]) <= 1
    (first, second) = covers(stretch)
    assert first["runId"] == second["runId"] == "run-1"
    assert first["eventSeq"] < second["eventSeq"]
    kept = next(event for event in stretch.events if event.seq == second["eventSeq"] + 1)
    assert kept.type in (E.INPUT_DELIVERED, E.MODEL_REQUEST_STARTED), "a turn is covered whole or not at all"


def assert_no_orphans(messages: tuple[ChatMessage, ...]) -> None:
    called = [call.call_id for message in messages for call in message.calls]
    answered = [message.call_id for message in messages if message.role == "tool"]
    assert called == answered


def test_the_users_words_to_the_run_stay_as_they_are() -> None:
    stretch = FakeStretch("the task")
    stretch.at(E.TOOL_FINISHED, lambda each: each.steer("only new products"))
    replies = [ModelReply(LONG, (ToolCall(f"c{n}", "big", {}),)) for n in range(2)]
    model = FakeModel(replies[0], replies[1], ModelReply("so far"), ModelReply("end"))
    assert drive(stretch, agent(model, FakeTool("big"), above=200)) is RunStatus.COMPLETED
    texts = [message.text for message in model.requests[-1].messages]
    assert texts[1:3] == ["the task", "only new products"]
    assert model.requests[-1].last_input == "only new products"


@pytest.mark.parametrize(
    "failure",
    [
        ModelFailed("down"),
        ModelReply(""),
        ModelReply("half a summ", stop_reason="max_tokens"),
        ModelReply("I look", (ToolCall("c", "big", {}),)),
    ],
)
def test_a_summary_that_fails_changes_nothing_and_is_tried_once(failure: ModelReply | ModelFailed) -> None:
    stretch = FakeStretch("now", conversation=before(LONG, "x"))
    model = FakeModel(failure, ModelReply("report"))
    assert drive(stretch, agent(model)) is RunStatus.COMPLETED
    assert [message.text for message in model.requests[1].messages] == [LONG, "x", "now"]
    (ended,) = [event.payload for event in stretch.events if event.type == E.RUN_COMPACTED]
    assert ended["covers"] is None
    assert ended["error"]


def test_a_cancel_while_summarising_ends_the_run_and_changes_nothing() -> None:
    stretch = FakeStretch("now", conversation=before(LONG))
    stretch.at(E.RUN_COMPACTING, FakeStretch.cancel)
    assert drive(stretch, agent(FakeModel(ModelReply("the summary")))) is RunStatus.CANCELLED
    assert stretch.conversation.summary is None
    assert covers(stretch) == []


@pytest.mark.parametrize("left_at", [E.RUN_COMPACTING, E.MODEL_REQUEST_STARTED, E.MODEL_REQUEST_FINISHED])
def test_a_compaction_that_lost_its_executor_is_made_again(left_at: EventType) -> None:
    first = FakeStretch("now", conversation=before(LONG))
    drive(first, agent(FakeModel(ModelReply("lost"), ModelReply("report"))))
    cut = first.types().index(left_at) + 1
    second = FakeStretch.after(first.events[:cut], first.messages)
    second.conversation = before(LONG)
    model = FakeModel(ModelReply("the summary"), ModelReply("report"))
    assert drive(second, agent(model)) is RunStatus.COMPLETED
    assert second.conversation.summary == "the summary"
    assert [each.status for each in second.operations if each.is_open] == []
    assert second.run.usage["turns"] == 1


def test_the_tokens_that_a_model_reported_count_more_than_an_estimate() -> None:
    usage = {"inputTokens": 5000, "outputTokens": 1}
    replies = [ModelReply("look", (ToolCall(f"c{n}", "t", {}),), usage=usage) for n in range(2)]
    stretch = FakeStretch("x" * 4000)
    model = FakeModel(replies[0], replies[1], ModelReply("end", usage=usage))
    assert drive(stretch, agent(model, FakeTool("t"), above=4000)) is RunStatus.COMPLETED
    # What can be replaced is not worth a request, however much the rest is.
    assert covers(stretch) == []
    assert tokens_of("x" * 4000) == 1000


def test_a_script_uses_each_turn_once_also_for_summaries() -> None:
    stretch = FakeStretch("now", conversation=before(LONG, LONG))
    script = scripted(
        {"ifContains": "Summarise", "text": "one"}, {"ifContains": "Summarise", "text": "two"}, {"text": "end"}
    )
    assert drive(stretch, agent(script)) is RunStatus.COMPLETED
    assert stretch.conversation.summary == "two"
    assert stretch.report == "end"


def compact_run(conversation: Conversation) -> FakeStretch:
    return FakeStretch(conversation=conversation, input_mode=COMPACT)


def test_a_run_that_only_summarises_ends_without_a_report() -> None:
    stretch = compact_run(before("a", "b", "c"))
    model = FakeModel(ModelReply("the summary"))
    assert drive(stretch, agent(model, above=None)) is RunStatus.COMPLETED
    assert (stretch.report, stretch.run.reason) == (None, "the messages up to 3 are summarised")
    assert stretch.run.usage["turns"] == 0


def test_what_is_said_to_it_is_answered_after_it() -> None:
    stretch = compact_run(before("a", "b"))
    stretch.at(E.RUN_COMPACTING, lambda each: each.follow_up("and now?"))
    model = FakeModel(ModelReply("the summary"), ModelReply("the answer"))
    assert drive(stretch, agent(model, above=None)) is RunStatus.COMPLETED
    assert stretch.report == "the answer"
    assert [message.text for message in model.requests[1].messages][-1] == "and now?"


def test_a_summary_that_was_asked_for_and_fails_fails_the_run() -> None:
    stretch = compact_run(before("a", "b"))
    assert drive(stretch, agent(FakeModel(ModelFailed("down")), above=None)) is RunStatus.FAILED
    assert stretch.run.reason == "the history could not be summarised: down"


def test_a_session_without_history_has_nothing_to_summarise() -> None:
    stretch = compact_run(before())
    assert drive(stretch, agent(FakeModel(), above=None)) is RunStatus.COMPLETED
    assert stretch.run.reason == "there was nothing to summarise"


def test_one_message_that_is_too_big_is_cut_in_the_middle() -> None:
    stretch = FakeStretch("now", conversation=before("begin " + "x" * 10_000 + " end"))
    model = FakeModel(ModelReply("the summary"), ModelReply("report"))
    drive(stretch, agent(model))
    text = model.requests[0].messages[0].text
    assert len(text) < 400 + len(INSTRUCTION) + 100
    assert "begin" in text
    assert "x end" in text
    assert "characters left out" in text
