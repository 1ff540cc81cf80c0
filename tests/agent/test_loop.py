"""The loop: what follows what, what runs at the same time, what is never started, and when it gives up."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from agentrun.agent import pauses
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import (
    Invocation,
    Limits,
    Model,
    ModelFailed,
    ModelReply,
    Tool,
    ToolCall,
    ToolOutcome,
)
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, calling, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

E = EventType
NO_LIMITS = Limits()
CANCELLED, FAILED, SKIPPED = OperationStatus.CANCELLED, OperationStatus.FAILED, OperationStatus.SKIPPED
SUCCEEDED, TIMED_OUT = OperationStatus.SUCCEEDED, OperationStatus.TIMED_OUT


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between attempts are what they are; no test waits for them."""
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 0.0)


def agent(model: Model, *tools: Tool, limits: Limits = NO_LIMITS) -> LoopAgent:
    return LoopAgent(model, tools, limits, "be careful")


def drive(stretch: FakeStretch, driven: LoopAgent) -> RunStatus:
    return anyio.run(stretch.drive, driven)


def statuses(stretch: FakeStretch) -> dict[str, OperationStatus]:
    """Of the tool calls, by operation id."""
    return {each.operation_id: each.status for each in stretch.operations if each.kind == "tool"}


GOOD = ToolOutcome(SUCCEEDED, b"good")
FOR_NOW = ToolOutcome(FAILED, error="exit 75", retryable=True)
LATE = ToolOutcome(TIMED_OUT, error="too slow", retryable=True)
LATE_WRITE = ToolOutcome(TIMED_OUT, error="too slow", may_have_effects=True, retryable=True)
BAD = ToolOutcome(FAILED, error="exit 1: no such table")


def test_a_reply_without_calls_is_the_report() -> None:
    stretch = FakeStretch("how much?")
    assert drive(stretch, agent(scripted({"text": "42 in all"}))) is RunStatus.COMPLETED
    assert stretch.report == "42 in all"
    assert stretch.types() == [
        "run.accepted", "run.lease_acquired", "run.started", "input.delivered",
        "model.request.started", "model.request.finished", "run.finished",
    ]  # fmt: skip
    assert stretch.drafts == {"op-1": "42 in all"}


def test_ids_are_dense_over_the_run_and_calls_are_registered_before_any_starts() -> None:
    # covers A33
    stretch = FakeStretch()
    tools = FakeTool("a"), FakeTool("b")
    drive(stretch, agent(scripted(calling("a", "b"), calling("b"), {"text": "{{op:a}}, {{op:b}}"}), *tools))
    assert [each.operation_id for each in stretch.operations] == [f"op-{n}" for n in range(1, 7)]
    assert [each.turn_id for each in stretch.operations] == ["turn-1"] * 3 + ["turn-2"] * 2 + ["turn-3"]
    kinds = stretch.types()
    assert kinds.index("tool.started") > kinds.index("tool.registered") + 1
    assert stretch.report == "result of op-2, result of op-5"


def test_calls_of_one_turn_run_at_the_same_time() -> None:
    here: dict[str, anyio.Event] = {}

    def meets(me: str, other: str) -> FakeTool:
        async def work(invocation: Invocation) -> ToolOutcome:
            here.setdefault(me, anyio.Event()).set()
            await here.setdefault(other, anyio.Event()).wait()
            return GOOD

        return FakeTool(me, work)

    stretch = FakeStretch()
    assert drive(stretch, agent(scripted(calling("a", "b"), {"text": "done"}), meets("a", "b"), meets("b", "a")))
    assert set(statuses(stretch).values()) == {SUCCEEDED}


@pytest.mark.parametrize("bad", [BAD, ValueError("a bug"), FOR_NOW])
def test_a_call_that_fails_leaves_its_siblings_alone(bad: ToolOutcome | Exception) -> None:
    # covers A55 A56
    stretch = FakeStretch()
    broken, slow = FakeTool("broken", outcomes(bad)), FakeTool("slow")
    assert drive(stretch, agent(scripted(calling("broken", "slow"), {"text": "done"}), broken, slow))
    assert statuses(stretch) == {"op-2": FAILED, "op-3": SUCCEEDED}
    assert stretch.run.status is RunStatus.COMPLETED


def test_a_bug_in_an_adapter_is_told_and_leaves_a_write_unresolved() -> None:
    stretch = FakeStretch()
    broken = FakeTool("broken", outcomes(ValueError("a bug")), effect="write", retries=3)
    drive(stretch, agent(scripted(calling("broken"), {"text": "done"}), broken))
    (call,) = [each for each in stretch.operations if each.kind == "tool"]
    assert call.error == "the tool's adapter failed: ValueError: a bug"
    assert call.is_unresolved
    assert len(broken.invocations) == 1


@pytest.mark.parametrize(
    ("effect", "given", "retries", "attempts", "end"),
    [
        ("read", [FOR_NOW, GOOD], 2, 2, SUCCEEDED),
        ("read", [LATE, GOOD], 2, 2, SUCCEEDED),
        ("read", [FOR_NOW, LATE, GOOD], 2, 3, SUCCEEDED),
        ("read", [FOR_NOW], 2, 3, FAILED),
        ("read", [FOR_NOW], 0, 1, FAILED),
        ("read", [BAD, GOOD], 2, 1, FAILED),
        ("write", [FOR_NOW, GOOD], 2, 2, SUCCEEDED),
        ("write", [LATE_WRITE, GOOD], 2, 1, TIMED_OUT),
        ("write", [BAD, GOOD], 2, 1, FAILED),
    ],
)
def test_retries(effect: Any, given: list[ToolOutcome], retries: int, attempts: int, end: OperationStatus) -> None:
    # covers A9 A37
    # covers B38 B62
    stretch = FakeStretch()
    tool = FakeTool("t", outcomes(*given), effect=effect, retries=retries)
    drive(stretch, agent(scripted(calling("t"), {"text": "done"}), tool))
    assert statuses(stretch) == {"op-2": end}
    assert [each.attempt for each in tool.invocations] == list(range(1, attempts + 1))
    assert len({each.idempotency_key for each in tool.invocations}) == 1
    finished = [event.payload for event in stretch.events if event.type == E.TOOL_FINISHED]
    assert [payload.get("willRetry", False) for payload in finished] == [True] * (attempts - 1) + [False]
    assert stretch.run.usage["retries"] == attempts - 1


def test_idempotency_keys_differ_between_actions() -> None:
    # covers B38 B62
    stretch, tool = FakeStretch(), FakeTool("t", effect="write")
    drive(stretch, agent(scripted(calling("t", "t"), calling("t"), {"text": "done"}), tool))
    keys = {each.idempotency_key for each in tool.invocations}
    assert len(keys) == 3
    assert all(len(key) == 32 for key in keys)


def test_pauses_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    least = {1: 0.2, 2: 0.4, 3: 0.8, 4: 1.6, 5: 3.2, 6: 5, 10_000: 5}
    for attempt, seconds in least.items():
        paused = [pauses.pause_after(attempt) for _ in range(50)]
        assert seconds <= min(paused) < max(paused) <= seconds * 1.5, "runs that failed together come back together"
    assert 60 <= pauses.pause_after(1, 60) <= 65, "a server gets the time that it asked for, and little more"


# Calls that never start.


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (ToolCall("c", "nosuch", {}), "there is no tool 'nosuch'; the tools are: t, never"),
        (ToolCall("c", "t", "{not json"), "its arguments are no JSON object: '{not json'"),
        (ToolCall("c", "never", {}), "its configuration does not allow it (approve = deny)"),
    ],
)
def test_a_hopeless_call_is_registered_and_skipped(asked: ToolCall, words: str) -> None:
    model, tool = FakeModel(ModelReply("", (asked,)), ModelReply("done")), FakeTool("t")
    stretch = FakeStretch()
    assert drive(stretch, agent(model, tool, FakeTool("never", approve="deny"))) is RunStatus.COMPLETED
    (call,) = [each for each in stretch.operations if each.kind == "tool"]
    assert (call.status, call.error) == (SKIPPED, words)
    assert f"was not started: {words}" in model.requests[1].messages[-1].text
    assert tool.invocations == []


def test_a_steer_skips_what_has_not_started_and_comes_with_the_next_request() -> None:
    first, second = FakeTool("first"), FakeTool("second")
    stretch = FakeStretch()
    stretch.at(E.TOOL_STARTED, lambda s: s.steer("only new products"))
    model = scripted(calling("first", "second"), {"text": "only the new ones", "ifContains": "only new"})
    assert drive(stretch, agent(model, first, second)) is RunStatus.COMPLETED
    assert statuses(stretch) == {"op-2": SUCCEEDED, "op-3": SKIPPED}
    assert stretch.operations[2].error == "the user has said something new"
    delivered = [event.payload for event in stretch.events if event.type == E.INPUT_DELIVERED]
    assert [(each["messageSeqs"], each["turnId"]) for each in delivered] == [([1], "turn-1"), ([2], "turn-2")]


def test_a_steer_before_another_attempt_leaves_the_failure_as_it_is() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_FINISHED, lambda s: s.steer("stop that"))
    tool = FakeTool("t", outcomes(FOR_NOW, GOOD), retries=5)
    drive(stretch, agent(scripted(calling("t"), {"text": "done"}), tool))
    call = stretch.operations[1]
    assert call.status is CANCELLED
    assert call.error == "attempt 1 failed (exit 75) and was the last one: the user has said something new"
    assert len(tool.invocations) == 1


# Follow-ups, questions, approvals.


def test_a_follow_up_waits_until_the_model_has_nothing_more_to_call() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_STARTED, lambda s: s.follow_up("and stock?"))
    model = scripted(calling("t"), {"text": "first"}, {"text": "with stock", "ifContains": "and stock?"})
    assert drive(stretch, agent(model, FakeTool("t"))) is RunStatus.COMPLETED
    assert stretch.report == "with stock"
    delivered = [event.payload for event in stretch.events if event.type == E.INPUT_DELIVERED]
    assert [(each["mode"], each["turnId"]) for each in delivered] == [
        ("prompt", "turn-1"),
        ("follow-up", "turn-3"),
    ]


def test_input_that_comes_with_the_report_is_answered_before_the_run_completes() -> None:
    stretch = FakeStretch()
    stretch.at(E.MODEL_REQUEST_FINISHED, lambda s: s.steer("shorter"))
    assert drive(stretch, agent(scripted({"text": "long"}, {"text": "short", "ifContains": "shorter"})))
    assert stretch.report == "short"


def test_a_question_ends_the_stretch_and_the_answer_begins_the_next() -> None:
    model = scripted(calling("t"), {"ask": "which?", "text": "Tell me."}, {"text": "new ones", "ifContains": "30 days"})
    tool = FakeTool("t")
    stretch = FakeStretch()
    assert drive(stretch, agent(model, tool)) is RunStatus.WAITING_INPUT
    assert stretch.is_left
    assert (stretch.run.waiting_for or {})["text"] == "which?"
    stretch.follow_up("and stock")
    stretch.answer("30 days")
    later = FakeStretch.after(stretch.events, stretch.messages)
    assert drive(later, agent(model, tool)) is RunStatus.WAITING_INPUT or later.run.is_over
    delivered = [event.payload["messageSeqs"] for event in later.events if event.type == E.INPUT_DELIVERED]
    assert delivered == [[1], [2], [3]]
    assert len(tool.invocations) == 1


def test_an_open_question_is_asked_again_by_the_next_stretch() -> None:
    model = scripted({"ask": "which?"}, {"text": "done"})
    stretch = FakeStretch()
    drive(stretch, agent(model))
    later = FakeStretch.after(stretch.events, stretch.messages)
    later.answers = ["these"]
    assert drive(later, agent(model)) is RunStatus.COMPLETED
    assert later.types().count("run.waiting_input") == 1


def test_approvals_are_asked_for_after_the_other_calls_and_one_by_one() -> None:
    stretch = FakeStretch()
    stretch.answers = ["approved", "denied", "approved"]
    free, write = FakeTool("free"), FakeTool("write", effect="write", approve="ask")
    model = scripted(calling("write", "free", "write", "write"), {"text": "done"})
    assert drive(stretch, agent(model, free, write)) is RunStatus.COMPLETED
    assert statuses(stretch) == {"op-2": SUCCEEDED, "op-3": SUCCEEDED, "op-4": SKIPPED, "op-5": SUCCEEDED}
    assert stretch.operations[3].error == "the user denied it"
    asked = [event.payload for event in stretch.events if event.type == E.RUN_WAITING_INPUT]
    assert [each["operationId"] for each in asked] == ["op-2", "op-4", "op-5"]
    assert asked[0]["text"] == 'May write be called (write)? Its arguments: {"of": "write"}'
    kinds = stretch.types()
    assert kinds.index("tool.finished") < kinds.index("run.waiting_input")
    assert [each.operation_id for each in write.invocations] == ["op-2", "op-5"]


def test_an_approval_is_taken_up_by_the_next_stretch() -> None:
    model = scripted(calling("write", "write"), {"text": "done"})
    write = FakeTool("write", effect="write", approve="ask")
    stretch = FakeStretch()
    assert drive(stretch, agent(model, write)) is RunStatus.WAITING_INPUT
    stretch.answer("denied", note="too early")
    later = FakeStretch.after(stretch.events, stretch.messages)
    assert drive(later, agent(model, write)) is RunStatus.WAITING_INPUT
    later.answer("approved")
    last = FakeStretch.after(later.events, later.messages)
    assert drive(last, agent(model, write)) is RunStatus.COMPLETED
    assert statuses(last) == {"op-2": SKIPPED, "op-3": SUCCEEDED}
    assert last.operations[1].error == "the user denied it: too early"
    assert len(write.invocations) == 1


def test_a_steer_while_an_approval_is_open_skips_the_call() -> None:
    model = scripted(calling("write"), {"text": "done"})
    write = FakeTool("write", effect="write", approve="ask")
    stretch = FakeStretch()
    drive(stretch, agent(model, write))
    stretch.steer("not that")
    stretch.answer("approved")
    later = FakeStretch.after(stretch.events, stretch.messages)
    assert drive(later, agent(model, write)) is RunStatus.COMPLETED
    assert statuses(later) == {"op-2": SKIPPED}


# Budgets and models that fail.


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_turns=1), "the budget of 1 turns is used up (max_turns)"),
        (Limits(max_tokens=3), "the budget of 3 tokens is used up (max_tokens; 3 were used)"),
        (
            Limits(max_tool_calls=1),
            "the budget of 1 tool calls is used up (max_tool_calls; 0 were made, the model asks for 2 more)",
        ),
    ],
)
def test_a_budget_that_is_used_up_fails_the_run(limits: Limits, reason: str) -> None:
    stretch, tool = FakeStretch(), FakeTool("t")
    driven = LoopAgent(scripted(calling("t", "t", text="look"), {"text": "done"}), [tool], limits, "be")
    assert drive(stretch, driven) is RunStatus.FAILED
    assert stretch.run.reason == reason


def test_a_budget_that_is_just_enough_is_enough() -> None:
    limits = Limits(max_turns=3, max_tool_calls=3, max_tokens=1000)
    stretch = FakeStretch()
    driven = agent(scripted(calling("t", "t"), calling("t"), {"text": "done"}), FakeTool("t"), limits=limits)
    assert drive(stretch, driven) is RunStatus.COMPLETED


def test_a_model_that_fails_for_now_is_asked_again_in_the_same_turn() -> None:
    busy = ModelFailed("overloaded", retryable=True)
    stretch, model = FakeStretch(), FakeModel(busy, busy, ModelReply("done"))
    assert drive(stretch, agent(model)) is RunStatus.COMPLETED
    started = [event.payload for event in stretch.events if event.type == E.MODEL_REQUEST_STARTED]
    assert [(each["operationId"], each["turnId"], each["attempt"]) for each in started] == [
        ("op-1", "turn-1", attempt) for attempt in (1, 2, 3)
    ]
    assert stretch.run.usage["turns"] == 1


@pytest.mark.parametrize(("retryable", "attempts"), [(True, 3), (False, 1)])
def test_a_model_that_keeps_failing_fails_the_run(retryable: bool, attempts: int) -> None:
    failures = [ModelFailed("overloaded", retryable=retryable) for _ in range(9)]
    stretch, model = FakeStretch(), FakeModel(*failures)
    assert drive(stretch, agent(model)) is RunStatus.FAILED
    assert stretch.run.reason == "the model fake failed: overloaded"
    assert len(model.requests) == attempts
    assert stretch.open_at_end == ()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ModelReply("half a rep", stop_reason="max_tokens"), "half a report is none"),
        (ModelReply("no", stop_reason="refusal"), "the model refused to answer"),
        (ModelReply(" \n"), "the model's last reply is empty"),
    ],
)
def test_what_is_no_whole_report_fails_the_run(reply: ModelReply, reason: str) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(FakeModel(reply))) is RunStatus.FAILED
    assert reason in (stretch.run.reason or "")
    assert stretch.report is None


def test_a_bug_of_a_model_goes_on_to_the_executor_alone_and_recorded() -> None:
    stretch = FakeStretch()
    with pytest.raises(KeyError, match="oops"):
        drive(stretch, agent(FakeModel(KeyError("oops"))))
    (request,) = stretch.operations
    assert (request.status, request.error) == (FAILED, "KeyError: 'oops'")


def test_calls_that_a_model_names_alike_are_told_apart() -> None:
    alike = (ToolCall("same", "t", {}), ToolCall("same", "t", {}), ToolCall("", "t", {}))
    model = FakeModel(ModelReply("", alike), ModelReply("", alike[:1]), ModelReply("done"))
    stretch = FakeStretch()
    assert drive(stretch, agent(model, FakeTool("t"))) is RunStatus.COMPLETED
    named = [each.tool_call_id for each in stretch.operations if each.kind == "tool"]
    assert len(set(named)) == 4


@pytest.mark.parametrize(
    "replies",
    [
        [["call-turn-1-2", ""]],
        [["call-turn-1-2", "call-turn-1-2", "call-turn-1-3"]],
        [["call-turn-2-1"], [""]],
        [["call-turn-2-1", "call-turn-2-1-again"], ["", ""]],
    ],
)
def test_names_that_are_made_for_calls_are_none_that_a_model_has_used(replies: list[list[str]]) -> None:
    """A model that sees such names in its history may well make up the next one."""
    asking = [ModelReply("", tuple(ToolCall(name, "t", {}) for name in names)) for names in replies]
    model = FakeModel(*asking, ModelReply("done"))
    stretch = FakeStretch("go")
    assert drive(stretch, agent(model, FakeTool("t"))) is RunStatus.COMPLETED
    told = model.requests[-1].messages
    asked = [call.call_id for message in told for call in message.calls]
    assert len(set(asked)) == len(asked) == sum(map(len, replies))
    assert [message.call_id for message in told if message.role == "tool"] == asked


def test_a_server_that_asks_for_patience_gets_it() -> None:
    """# covers A9: the pause is on the record, and as long as the server wanted."""
    busy = ModelFailed("busy", retryable=True, retry_after=0.25)
    stretch = FakeStretch("go")
    begun = time.monotonic()
    assert drive(stretch, agent(FakeModel(busy, ModelReply("done")))) is RunStatus.COMPLETED
    assert stretch.report == "done"
    assert time.monotonic() - begun >= 0.25
    failed = next(event for event in stretch.events if event.payload.get("status") == "failed")
    assert 250 <= failed.payload["pauseMs"] <= 375


@pytest.mark.parametrize(
    ("asked", "left", "why"),
    [
        (3600, None, "the server asks to wait 3600 s, and more than 600 s is not waited"),
        (60, 20.0, "the server asks to wait 60 s, and the run has 20 s left"),
        (60, -1.0, "the server asks to wait 60 s, and the run has 0 s left"),
    ],
)
def test_a_server_that_asks_for_too_much_patience_fails_the_run_at_once(
    asked: float, left: float | None, why: str
) -> None:
    """# covers A9 A54: what the server asked for is said, and nobody waits for what cannot come."""
    stretch, model = FakeStretch(), FakeModel(ModelFailed("busy", retryable=True, retry_after=asked))
    stretch.seconds_left = left
    assert drive(stretch, agent(model)) is RunStatus.FAILED
    assert stretch.run.reason == f"the model fake failed: busy ({why})"
    (request,) = stretch.operations
    assert (request.status, request.attempt, request.error) == (FAILED, 1, f"busy ({why})")
    assert not any(event.payload.get("willRetry") for event in stretch.events)


def test_a_cancel_ends_the_pause_between_two_requests() -> None:
    # covers A45 A46 B26
    stretch = FakeStretch()
    stretch.at(E.MODEL_REQUEST_FINISHED, lambda s: s.cancel())
    model = FakeModel(ModelFailed("busy", retryable=True, retry_after=300))
    assert drive(stretch, agent(model)) is RunStatus.CANCELLED
    assert len(model.requests) == 1
    assert [each.status for each in stretch.operations] == [CANCELLED]
    assert stretch.open_at_end == ()
