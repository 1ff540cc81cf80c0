"""The scripted model: which turn is next, how it streams, and what a wrong script is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.models.script import load_turns, read_turns
from agentrun.adapters.models.scripted import ScriptedModel
from agentrun.agent.protocols import ChatMessage, ModelFailed, ModelReply, ModelRequest, ToolCall
from agentrun.errors import ConfigError


def model(*turns: dict[str, Any]) -> ScriptedModel:
    return ScriptedModel(read_turns({"turns": list(turns)}, "/somewhere/review.json"), "/somewhere/review.json")


def request(last_input: str = "", used: tuple[int, ...] = (), **results: str) -> ModelRequest:
    replies = tuple(ModelReply("", extra={"scriptTurn": number}) for number in used)
    messages = (ChatMessage("user", last_input),)
    return ModelRequest("be very careful", messages, (), last_input, replies, results)


def complete(driven: ScriptedModel, asked: ModelRequest) -> tuple[ModelReply, list[str]]:
    pieces: list[str] = []

    async def on_text(piece: str) -> None:
        pieces.append(piece)

    return anyio.run(driven.complete, asked, on_text), pieces


TURNS = ({"ifContains": "new", "text": "one"}, {"text": "two"}, {"ifContains": "new", "text": "three"})


@pytest.mark.parametrize(
    ("last_input", "used", "text"),
    [
        ("only new ones", (), "one"),
        ("only new ones", (1,), "two"),
        ("only new ones", (1, 2), "three"),
        ("only new ones", (2,), "one"),
        ("old ones", (), "two"),
        ("Only New ones", (), "two"),
    ],
)
def test_the_first_unused_turn_that_fits_is_next(last_input: str, used: tuple[int, ...], text: str) -> None:
    reply, _ = complete(model(*TURNS), request(last_input, used))
    assert reply.text == text


def test_when_no_turn_is_left_the_model_fails_for_good_and_says_on_what() -> None:
    with pytest.raises(ModelFailed, match=r"/somewhere/review\.json: no turn is left .* 'old ones'") as failed:
        complete(model(*TURNS), request("old ones", (2,)))
    assert not failed.value.retryable


def test_a_reply_is_all_that_its_turn_says() -> None:
    calls = [{"name": "query", "arguments": {"sql": "x"}}, {"name": "query"}]
    reply, pieces = complete(model({"text": "Which are  new,\nthen? ", "calls": calls, "ask": "Which?"}), request("go"))
    assert reply.text == "".join(pieces) == "Which are  new,\nthen? "
    assert pieces == ["Which ", "are  ", "new,\n", "then? "]
    assert reply.calls == (ToolCall("call-1-1", "query", {"sql": "x"}), ToolCall("call-1-2", "query", {}))
    assert reply.question == "Which?"
    assert reply.extra == {"scriptTurn": 1}
    assert reply.usage == {"inputTokens": 4, "outputTokens": 5}


def test_results_stand_where_the_text_cites_them() -> None:
    turn = {"text": "Sales: {{op:query_sales}}.", "ask": "Is {{op:query_sales}} right?"}
    reply, pieces = complete(model(turn), request(query_sales="| 4 |\n| 2 |"))
    assert reply.text == "".join(pieces) == "Sales: | 4 |\n| 2 |."
    assert reply.question == "Is | 4 |\n| 2 | right?"


def test_a_result_that_is_not_there_fails_the_model_instead_of_being_left_out() -> None:
    with pytest.raises(ModelFailed, match=r"turn 1 cites \{\{op:query\}\}, which has no result yet"):
        complete(model({"text": "Sales: {{op:query}}"}), request())


def test_words_come_as_far_apart_as_the_script_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    complete(model({"text": "one two three", "delayMs": 50}), request())
    assert pauses == [0, 0.05, 0.05]


def test_the_name_says_which_script_but_not_where_it_lies() -> None:
    assert model().name == "scripted:review.json"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ({"turn": []}, "has no key 'turn'; did you mean 'turns'?"),
        ({"turns": {}}, '"turns" must be a list'),
        ({}, '"turns" must be a list'),
        ({"turns": ["x"]}, "turn 1 must be an object"),
        ({"turns": [{}, {"ifContain": "x"}]}, "turn 2 has no key 'ifContain'; did you mean 'ifContains'?"),
        ({"turns": [{"text": 4}]}, "turn 1: text must be text"),
        ({"turns": [{"delayMs": "50"}]}, "turn 1: delayMs must be a number"),
        ({"turns": [{"delayMs": True}]}, "turn 1: delayMs must be a number"),
        ({"turns": [{"delayMs": -1}]}, "turn 1: delayMs must be a number"),
        ({"turns": [{"calls": {}}]}, "turn 1: calls must be a list"),
        ({"turns": [{"calls": [{}]}]}, "turn 1, call 1: name must be the name of a tool"),
        ({"turns": [{"calls": [{"name": "q", "args": {}}]}]}, "turn 1, call 1 has no key 'args'"),
        (
            {"turns": [{"calls": [{"name": "q", "arguments": "x"}]}]},
            "turn 1, call 1: arguments must be an object",
        ),
    ],
)
def test_a_wrong_script_is_refused_with_the_place(tmp_path: Path, script: Any, says: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script))
    with pytest.raises(ConfigError) as refused:
        load_turns(str(path))
    assert str(path) in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"turns": [', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a JSON object"):
        load_turns(str(path))


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nosuch\.json cannot be read: No such file"):
        load_turns(str(tmp_path / "nosuch.json"))
