"""The models behind real APIs, against servers that say exactly what a test wants them to say, or stop saying it."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import pytest

from agentrun.adapters.models import bounded, streaming
from agentrun.adapters.models.anthropic import AnthropicModel
from agentrun.adapters.models.openai_compatible import OpenAICompatibleModel
from agentrun.adapters.models.settings import Key, ModelSettings
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import (
    ChatMessage,
    Limits,
    Model,
    ModelFailed,
    ModelReply,
    ModelRequest,
    ToolCall,
    ToolSpec,
)
from agentrun.config.secrets import without_secrets
from agentrun.errors import ConfigError
from agentrun.states import RunStatus
from agentrun.testing.fakes import FakeTool
from agentrun.testing.stretch import FakeStretch

pytestmark = pytest.mark.slow  # loading an SDK takes a second

KEY = "sk-very-secret-0123456789"
PATIENCE = 30.0
QUERY = ToolSpec("query", "asks", {"type": "object", "properties": {"sql": {"type": "string"}}})
HELLO = (ChatMessage("user", "hello"),)


def model(wire: Any, endpoint: Any, **settings: Any) -> Model:
    key = Key(variable="KEY", environment={"KEY": KEY})
    make = {"openai": OpenAICompatibleModel, "anthropic": AnthropicModel}[wire.dialect]
    return make(ModelSettings(**({"agent": "a", "name": "m", "key": key, "base_url": endpoint.url} | settings)))


def request(*messages: ChatMessage, tools: tuple[ToolSpec, ...] = (), system: str = "") -> ModelRequest:
    return ModelRequest(system, messages or HELLO, tools, "hello", (), {})


def ask(model: Model, asked: ModelRequest | None = None, texts: list[str] | None = None) -> ModelReply:
    async def on_text(text: str) -> None:
        if texts is not None:
            texts.append(text)

    async def complete() -> ModelReply:
        return await model.complete(asked or request(), on_text)

    return anyio.run(complete)


def failure(model: Model) -> ModelFailed:
    with pytest.raises(ModelFailed) as failed:
        ask(model)
    return failed.value


def test_a_reply_streams_and_is_counted(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("Hel", "lo ", "there"))
    texts: list[str] = []
    reply = ask(model(wire, endpoint, temperature=0.5), request(system="be kind"), texts)
    assert texts == ["Hel", "lo ", "there"]
    assert reply == ModelReply("Hello there", usage={"inputTokens": 11, "outputTokens": 7, "costUsd": None})
    assert endpoint.paths == [wire.path]
    assert endpoint.requests[0]["temperature"] == 0.5
    assert "be kind" in json.dumps(endpoint.requests[0])
    sent = endpoint.headers[0]
    assert KEY in (sent.get("authorization", "") + sent.get("x-api-key", ""))


def test_calls_in_pieces_and_side_by_side(wire: Any, endpoint: Any) -> None:
    calls = (
        {"id": "c1", "name": "query", "arguments": '{"sql": "select 1"}'},
        {"id": "c2", "name": "query", "arguments": '{"sql": '},
        {"id": "c3", "name": "query", "arguments": ""},
    )
    endpoint.will(wire.stream("Looking.", calls=calls))
    reply = ask(model(wire, endpoint), request(tools=(QUERY,)))
    assert reply.text == "Looking."
    assert reply.calls == (
        ToolCall("c1", "query", {"sql": "select 1"}),
        ToolCall("c2", "query", '{"sql": '),  # no JSON: kept as it came, the loop says so to the model
        ToolCall("c3", "query", {}),
    )
    assert "query" in json.dumps(endpoint.requests[0]["tools"])


def test_a_question_to_the_user_is_no_tool_call(wire: Any, endpoint: Any) -> None:
    call = {"id": "c1", "name": "ask_user", "arguments": '{"question": "Which month?"}'}
    endpoint.will(wire.stream(calls=(call,)))
    reply = ask(model(wire, endpoint))
    assert (reply.question, reply.calls) == ("Which month?", ())
    endpoint.will(wire.stream("x"))
    ask(model(wire, endpoint, may_ask=False))
    assert "ask_user" not in json.dumps(endpoint.requests[1])


def test_whatever_a_run_holds_is_put_so_that_an_api_takes_it(wire: Any, endpoint: Any) -> None:
    """# covers A36: each call has its one result, also one that was wrong."""
    calls = (ToolCall("a b/c", "no such tool!", '{"half'), ToolCall("c2", "query", {"sql": "x"}))
    history = (
        ChatMessage("user", "one"),
        ChatMessage("user", "two"),
        ChatMessage("assistant", "", calls=calls),
        ChatMessage("tool", "there is no such tool", call_id="a b/c"),
        ChatMessage("tool", "", call_id="c2"),
        ChatMessage("user", "go on"),
    )
    endpoint.will(wire.stream("ok"))
    ask(model(wire, endpoint), request(*history, tools=(QUERY,)))
    messages = endpoint.requests[0]["messages"]
    roles = [message["role"] for message in messages]
    assert all(roles[at] != "user" or roles[at + 1] != "user" for at in range(len(roles) - 1))
    text = json.dumps(messages)
    assert "one\\n\\ntwo" in text or ("one" in text and "two" in text)
    assert "no_such_tool_" in text
    assert "no such tool!" not in text
    assert text.count("a_b_c") == 2
    assert "invalid_json" in text


STATUSES = [(400, False), (401, False), (403, False), (404, False), (422, False)]
STATUSES += [(408, True), (409, True), (429, True), (500, True), (502, True), (503, True), (529, True)]


@pytest.mark.parametrize(("status", "retryable"), STATUSES)
def test_which_statuses_are_worth_another_attempt(wire: Any, endpoint: Any, status: int, retryable: bool) -> None:
    endpoint.will_fail(status, f"no, since {KEY} is wrong", headers="Retry-After: 7\r\n")
    failed = failure(model(wire, endpoint))
    assert failed.retryable is retryable
    assert f"HTTP {status}: no, since [redacted] is wrong" in failed.reason
    assert failed.retry_after == (7.0 if retryable else None)
    assert len(endpoint.requests) == 1, "the SDK must not retry by itself"


def test_a_key_is_found_also_where_a_reason_is_cut(wire: Any, endpoint: Any) -> None:
    # covers promise 15
    endpoint.will_fail(400, "x" * 1980 + KEY)
    failed = failure(model(wire, endpoint))
    assert KEY[:6] not in failed.reason
    assert "HTTP 400: xxx" in failed.reason


@pytest.mark.parametrize("key", ['sk-"a\\b"/c+d', "sk-é-ünïcode".encode().hex(), "sk-a b=c&d%e"])
def test_a_key_is_found_however_it_is_quoted(wire: Any, endpoint: Any, key: str) -> None:
    # covers promise 15
    forms = [key, repr(key.encode()), json.dumps(json.dumps(key)), quote(key, safe=""), quote_plus(key)]
    endpoint.will_fail(400, " | ".join(forms))
    failed = failure(model(wire, endpoint, key=Key(variable="KEY", environment={"KEY": key})))
    assert not [form for form in forms if form.strip("b'\"\\") in failed.reason], failed.reason


def test_an_address_with_a_password_is_not_told(wire: Any, endpoint: Any) -> None:
    # covers promise 15
    endpoint.will_fail(401, "no such user: ann:pass%40word, Basic YW5uOnBhc3NAd29yZA==, pass@word")
    url = endpoint.url.replace("//", "//ann:pass%40word@")
    reason = failure(model(wire, endpoint, base_url=url)).reason
    assert "no such user: ann:[redacted], Basic [redacted], [redacted]" in reason


def test_a_key_with_a_line_break_behind_it_is_a_key(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("x"))
    ask(model(wire, endpoint, key=Key(variable="KEY", environment={"KEY": f"{KEY}\r\n"})))
    sent = endpoint.headers[0]
    assert (sent.get("authorization") or f"Bearer {sent.get('x-api-key')}") == f"Bearer {KEY}"


@pytest.mark.parametrize("broken", ["sk-one\nsk-two-secret", "sk-\x00secret", "\u201csk-secret\u201d"])
def test_what_fits_into_no_header_is_no_key(wire: Any, endpoint: Any, broken: str) -> None:
    """The HTTP library would quote it in its error. # covers promise 15"""
    key = Key(variable="KEY", environment={"KEY": broken})
    with pytest.raises(ConfigError, match="variable KEY has characters that no key has"):
        key.check("a")
    failed = failure(model(wire, endpoint, key=key))
    assert "secret" not in failed.reason
    assert "has characters that no key has" in failed.reason
    assert not failed.retryable
    assert endpoint.requests == []


@pytest.mark.parametrize("charset", ["rot13", "zlib_codec", "undefined", "utf-16", "no such thing"])
def test_what_a_server_calls_its_encoding_is_not_believed(wire: Any, endpoint: Any, charset: str) -> None:
    endpoint.will_fail(400, "no way", headers=f"Content-Type: application/json; charset={charset}\r\n")
    assert "HTTP 400: no way" in failure(model(wire, endpoint)).reason


def test_a_server_that_sends_on_to_another_is_not_followed(wire: Any, endpoint: Any, other: Any) -> None:
    """Not with the conversation, nor with a key in a header of its own. # covers promise 15"""
    for status, place in ((307, other.url), (308, other.url), (302, other.url), (307, "//ann:pw@localhost:1")):
        endpoint.will(b"", status=f"{status} On", headers=f"Location: {place}/v2?key=SECRET#x\r\n")
        failed = failure(model(wire, endpoint))
        assert "sends on to http://" in failed.reason
        assert "/v2, which is not asked; if that is right, name it as base_url" in failed.reason
        assert "SECRET" not in failed.reason
        assert "pw" not in failed.reason
        assert not failed.retryable
    assert other.requests == []


def test_a_server_may_send_on_to_another_path_of_its_own(wire: Any, endpoint: Any) -> None:
    endpoint.will(b"", status="307 On", headers="Location: /elsewhere/\r\n")
    endpoint.will(wire.stream("there"))
    assert ask(model(wire, endpoint)).text == "there"
    assert endpoint.paths == [wire.path, "/elsewhere/"]


def test_an_address_that_is_none_is_not_tried_again(wire: Any, endpoint: Any) -> None:
    failed = failure(model(wire, endpoint, base_url="http://ann:pass@127.0.0.1:99999/"))
    assert "http://[redacted]@127.0.0.1:99999" in failed.reason
    assert not failed.retryable


def test_a_date_to_come_back_and_one_that_is_nonsense(wire: Any, endpoint: Any) -> None:
    endpoint.will_fail(429, "later", headers="Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\r\n")
    asked = failure(model(wire, endpoint)).retry_after
    assert asked is not None
    assert asked > 365 * 86400, "whether that is too long is not for the adapter to say"
    endpoint.will_fail(429, "later", headers="Retry-After: soon\r\n")
    assert failure(model(wire, endpoint)).retry_after is None


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda wire: wire.stream("half", ends=False), "without a finish reason"),
        (lambda wire: b"", "without a finish reason"),
        (lambda wire: wire.stream(), "the reply was empty"),
        (lambda wire: wire.stream("half", ends=False) + wire.error("overloaded_error", "too much"), "too much"),
        (lambda wire: wire.stream("half", ends=False) + b"event: message_stop\ndata: {nonsense\n\n", "no JSON"),
    ],
)
def test_a_stream_that_is_cut_or_broken_is_tried_again(
    wire: Any, endpoint: Any, answer: Callable[[Any], bytes], says: str
) -> None:
    endpoint.will(answer(wire))
    failed = failure(model(wire, endpoint))
    assert says in failed.reason
    assert failed.retryable


# covers A26 A55
@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"x":NaN}', {"x": "NaN"}),
        ('{"x":-Infinity}', {"x": "-Infinity"}),
        ('{"x":1e999}', {"x": "1e999"}),
        ('{"x":' + "9" * 5000 + "}", {"x": "9" * 5000}),
        ('{"x":' * 5000 + "1" + "}" * 5000, '{"x":' * 5000 + "1" + "}" * 5000),
    ],
)
def test_numbers_that_no_record_can_hold_are_kept_as_text(
    wire: Any, endpoint: Any, arguments: str, kept: object
) -> None:
    endpoint.will(wire.stream(calls=({"id": "c1", "name": "query", "arguments": arguments},)))
    assert ask(model(wire, endpoint)).calls == (ToolCall("c1", "query", kept),)


# Of each dialect: the SDKs look at none of this.
_OTHER_FORMS = {
    "openai": (
        b'data: {"id":"x","object":"chat.completion.chunk","choices":5}\n\n',
        b'data: {"id":"x","object":"chat.completion.chunk","choices":[5]}\n\n',
        b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":7}}]}\n\n',
        b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":3}}]}\n\n',
    ),
    "anthropic": (
        b'event: message_start\ndata: {"type":"message_start","message":5}\n\n',
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}\n\n',
        b'event: message_delta\ndata: {"type":"message_delta","delta":[],"usage":{"output_tokens":1}}\n\n',
    ),
}


def test_a_stream_of_another_form_is_broken_and_tried_again(wire: Any, endpoint: Any) -> None:
    for odd in _OTHER_FORMS[wire.dialect]:
        endpoint.will(wire.stream("half", ends=False) + odd + wire.stream())
        failed = failure(model(wire, endpoint))
        assert "the stream is broken: what came has another form" in failed.reason, odd
        assert failed.retryable


@pytest.mark.parametrize("tokens", ["NaN", "1e999", "-3", '"many"', "7.5", "9" * 400])
def test_tokens_that_are_no_count_are_not_known(wire: Any, endpoint: Any, tokens: str) -> None:
    endpoint.will(wire.stream("hello").replace(b'_tokens": 7', f'_tokens": {tokens}'.encode()))
    reply = ask(model(wire, endpoint))
    assert reply.usage == {"inputTokens": 11, "outputTokens": None, "costUsd": None}


def test_an_error_in_a_stream_that_no_attempt_helps(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("half", ends=False) + wire.error("invalid_request_error", f"bad {KEY}"))
    failed = failure(model(wire, endpoint))
    assert "bad [redacted]" in failed.reason
    assert not failed.retryable


def test_a_server_that_never_sends_a_reason(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("whole", ends=False))
    assert ask(model(wire, endpoint, finish_reason="optional")).text == "whole"


@pytest.mark.parametrize(("stop", "expected"), [("length", "max_tokens"), ("content_filter", "refusal")])
def test_a_reply_that_was_cut_off_says_why_and_calls_nothing(
    wire: Any, endpoint: Any, stop: str, expected: str
) -> None:
    call = {"id": "c1", "name": "query", "arguments": '{"sql": "x"}'}
    endpoint.will(wire.stream("half", calls=(call,), stop=stop))
    reply = ask(model(wire, endpoint), request(tools=(QUERY,)))
    assert (reply.stop_reason, reply.calls, reply.text) == (expected, (), "half")


def test_a_connection_that_breaks_or_is_refused_is_tried_again(wire: Any, endpoint: Any) -> None:
    endpoint.will_drop()
    assert failure(model(wire, endpoint)).retryable
    endpoint.will(b"5\r\nhal", headers="Transfer-Encoding: chunked\r\n")
    assert failure(model(wire, endpoint)).retryable
    url = endpoint.url
    endpoint.close()
    failed = failure(model(wire, endpoint, base_url=url.replace("//", "//ann:pass@")))
    assert failed.retryable
    assert "the connection to http://[redacted]@127.0.0.1" in failed.reason


def test_a_silent_server_is_given_up(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("half", ends=False), stays=True)
    failed = failure(model(wire, endpoint, silence=0.2))
    assert failed.retryable
    assert "said nothing for 0.2 s" in failed.reason


def endless(wire: Any, how: str) -> tuple[bytes, str, str]:
    """The body of an answer of several MiB without an end, its status, and what came with it."""
    match how:
        case "texts":
            return wire.stream(*["x" * 60_000] * 60, ends=False), "200 OK", ""
        case "arguments":
            call = {"id": "c", "name": "query", "arguments": '{"sql":"' + "x" * 3_000_000}
            return wire.stream(calls=(call,), ends=False), "200 OK", ""
        case "comments":
            return b": still here\n\n" * 300_000, "200 OK", ""
        case "line":
            return b"data: " + b"x" * 3_000_000, "200 OK", ""
        case "lines":
            return b"data: x\n" * 150_000, "200 OK", ""
        case "compressed":
            return gzip.compress(b"data: " + b"x" * 3_000_000), "200 OK", "Content-Encoding: gzip\r\n"
        case _:
            return b'{"error": {"message": "' + b"x" * 3_000_000, "400 Bad Request", ""


@pytest.mark.parametrize("how", ["texts", "arguments", "comments", "line", "lines", "compressed", "error"])
def test_an_answer_without_end_is_read_to_a_bound(
    how: str, wire: Any, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers promise 16
    monkeypatch.setattr(bounded, "MOST_BYTES", 2 << 20)
    monkeypatch.setattr(bounded, "MOST_EVENT_BYTES", 1 << 20)
    body, status, headers = endless(wire, how)
    endpoint.will(body, status=status, headers=headers, stays=True)
    failed = failure(model(wire, endpoint))
    assert "its answer does not end" in failed.reason
    assert not failed.retryable


def test_a_text_without_end_is_no_reply(wire: Any, endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MOST_TEXT", 100_000)
    endpoint.will(wire.stream(*["x" * 30_000] * 4, ends=False), stays=True)
    failed = failure(model(wire, endpoint))
    assert "more than 100000 characters" in failed.reason
    assert not failed.retryable


def test_what_is_nested_too_deep_breaks_the_stream_and_nothing_else(wire: Any, endpoint: Any) -> None:
    deep = b"data: " + b"[" * 100_000 + b"\n\n"
    endpoint.will(deep if wire.dialect == "openai" else b"event: message_start\n" + deep)
    failed = failure(model(wire, endpoint))
    assert "nested too deep" in failed.reason
    assert failed.retryable


def test_a_cancelled_request_is_seen_by_the_server_at_once(wire: Any, endpoint: Any) -> None:
    """# covers A46 B27: the connection is closed, not left to a collector or a time-out."""
    endpoint.will(wire.stream("half", ends=False), stays=True)

    async def cancelled() -> None:
        async def on_text(text: str) -> None:
            scope.cancel()

        with anyio.CancelScope() as scope:
            await model(wire, endpoint).complete(request(), on_text)
        assert scope.cancelled_caught
        with anyio.fail_after(PATIENCE):
            await anyio.to_thread.run_sync(endpoint.gone.wait, PATIENCE)

    anyio.run(cancelled)
    assert endpoint.gone.is_set()


def test_the_loop_works_with_it_over_failures(wire: Any, endpoint: Any) -> None:
    """# covers A4 A9 A33 A37: each attempt is recorded, the run stays the same, the failure is no result."""
    endpoint.will_fail(503, "busy")
    endpoint.will(wire.stream("Looking.", calls=({"id": "c1", "name": "query", "arguments": '{"sql": "x"}'},)))
    endpoint.will(wire.stream("half", ends=False))
    endpoint.will(wire.stream("All ", "well."))
    stretch = FakeStretch("go")
    agent = LoopAgent(model(wire, endpoint), [FakeTool("query")], Limits(), "")
    assert anyio.run(stretch.drive, agent) is RunStatus.COMPLETED
    assert stretch.report == "All well."
    started = [event.payload["attempt"] for event in stretch.events if event.type == "model.request.started"]
    assert started == [1, 2, 1, 2]
    assert KEY not in json.dumps([event.payload for event in stretch.events])


def test_a_stopped_run_has_no_usage_rather_than_zero(wire: Any, endpoint: Any) -> None:
    endpoint.will(wire.stream("half", ends=False), stays=True)
    stretch = FakeStretch("go")

    async def drive() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(stretch.drive, LoopAgent(model(wire, endpoint), [], Limits(), ""))
            await anyio.to_thread.run_sync(endpoint.sent.wait, PATIENCE)
            stretch.cancel()

    anyio.run(drive)
    finished = next(event for event in stretch.events if event.type == "model.request.finished")
    assert (finished.payload["status"], finished.payload["usage"]) == ("cancelled", None)
    assert endpoint.gone.wait(PATIENCE)
    assert stretch.run.status is RunStatus.CANCELLED


def test_a_key_printed_by_a_command(wire: Any, endpoint: Any, tmp_path: Path) -> None:
    (tmp_path / "key.py").write_text("print('sk-from-command')\nprint('a note')")
    key = Key(command=(sys.executable, "key.py"), directory=str(tmp_path), environment={})
    endpoint.will(wire.stream("x"))
    ask(model(wire, endpoint, key=key))
    sent = endpoint.headers[0]
    assert (sent.get("authorization") or f"Bearer {sent.get('x-api-key')}") == "Bearer sk-from-command"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('sk-half-a-secret')"), "ended with exit code 1"),
        ((sys.executable, "-c", ""), "printed nothing"),
        (("/no/such/program",), "cannot start"),
    ],
)
def test_a_command_that_prints_no_key(wire: Any, endpoint: Any, command: tuple[str, ...], says: str) -> None:
    failed = failure(model(wire, endpoint, key=Key(command=command, environment={})))
    assert says in failed.reason
    assert "sk-half" not in failed.reason
    assert not failed.retryable
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/v1", "http://h/v1"),
        ("http://h/v1?api-version=2&x=1", "http://h/v1?api-version=2&x=1"),
        ("http://ann:pass@h/v1", "http://[redacted]@h/v1"),
        ("http://h/v1?key=SECRET", "http://h/v1?key=[redacted]"),
        ("http://h/v1?a=1&Access_Token=SECRET&b=2#c", "http://h/v1?a=1&Access_Token=[redacted]&b=2#c"),
        ("http://ann:pa/ss@h/v1", "http://[redacted]@h/v1"),
        ("https//ann:pass@h/v1", "https//[redacted]@h/v1"),
        ("http://h:8080/@scope/v1", "http://h:8080/@scope/v1"),
        ("http://ann:pass@h/v1?sig=SECRET&code=1", "http://[redacted]@h/v1?sig=[redacted]&code=1"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    # covers promise 15
    assert without_secrets(url) == shown
