"""Conversations of other programs become sessions that read, check, fork and go on like any other."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.adapters.foreign.lines import LONGEST
from agentrun.agent.transcript import Transcript
from agentrun.commands.foreign import NO_RESULT, NOT_TOLD, Taken
from agentrun.commands.importing import FORMATS, import_foreign, kind_of
from agentrun.errors import AgentrunError, CorruptRecord, UsageError
from agentrun.states import EventType
from agentrun.store.check import check_session
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees

Doc = dict[str, Any]


def lines(*docs: Doc | bytes) -> bytes:
    return b"".join(doc if isinstance(doc, bytes) else json.dumps(doc).encode() + b"\n" for doc in docs)


@pytest.fixture
def taken(tree: Tree, tmp_path: Path) -> Callable[..., list[Taken]]:
    """Imports the bytes, by what they are."""

    def take(data: bytes, name: str = "file.jsonl", kind: str | None = None, new_id: str | None = None) -> list[Taken]:
        path = tmp_path / name
        path.write_bytes(data)
        with path.open("rb") as source:
            return import_foreign(tree, source, str(path), kind or kind_of(source, str(path)), new_id)

    return take


def session_of(tree: Tree, taken: Taken) -> SessionDir:
    session = tree.session(taken.session.session_id)
    assert [each for each in check_session(tree, session.session_id, repair=False) if each.is_wrong] == []
    return session


def told(session: SessionDir) -> list[tuple[str, str, str, str]]:
    return [(m.run_id, m.role, m.mode or "", m.text) for m in session.messages_since(1)]


def calls_of(session: SessionDir, run_id: str) -> list[tuple[str, str, str | None, str | None]]:
    turns = Transcript().catch_up(list(session.run(run_id).all_events())).turns
    return [(call.name, call.status.value, call.result, call.error) for turn in turns for call in turn.calls]


# Claude Code.


def said(text: object, at: str, **more: object) -> Doc:
    return {
        "type": "user", "sessionId": "c-1", "cwd": "/work", "version": "2.1", "isSidechain": False, "uuid": f"u-{at}",
        "timestamp": f"2026-02-01T10:{at}Z", "message": {"role": "user", "content": text},
    } | more  # fmt: skip


def replied(message: str, at: str, *blocks: Doc, **more: object) -> Doc:
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100}
    body = {"id": message, "model": "claude-x", "role": "assistant", "content": list(blocks), "usage": usage}
    return {
        "type": "assistant", "sessionId": "c-1", "isSidechain": False, "uuid": f"a-{at}",
        "timestamp": f"2026-02-01T10:{at}Z", "message": body,
    } | more  # fmt: skip


def text(words: str) -> Doc:
    return {"type": "text", "text": words}


def use(call: str, name: str = "Bash", **given: object) -> Doc:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def result(call: str, content: object, *, error: bool = False) -> Doc:
    return {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": error}


CLAUDE = (
    {"type": "summary", "summary": "The parser", "leafUuid": "x"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    said("note", "00:00.000", isMeta=True),
    said("fix the parser", "00:00.000"),
    # One reply, a line for each block, with the result of a call between them.
    replied("m1", "00:01.000", {"type": "thinking", "thinking": "hm"}),
    replied("m1", "00:02.000", text("I look.")),
    replied("m1", "00:03.000", use("t1", "Read", file="a.py")),
    said([result("t1", "1 line")], "00:04.000"),
    replied("m1", "00:05.000", use("t2", command="rm -rf /")),
    replied("other", "00:05.500", text("of a helper"), isSidechain=True),
    said([result("t2", [text("refused"), {"type": "image"}], error=True), result("t9", "of no call")], "00:06.000"),
    said("only the lexer", "00:06.500"),
    replied("m2", "00:08.000", text("Done.")),
    said([text("and the tests")], "01:00.000"),
    replied("m3", "01:05.000", use("t3", command="pytest")),
    said([text("[Request interrupted by user for tool use]")], "01:09.000"),
    {"type": "novelty", "sessionId": "c-1"},
    b'{"no json\n',
    said("thanks", "02:00.000"),
    replied("m4", "02:01.000", text("API Error: overloaded"), isApiErrorMessage=True),
    said("hello?", "03:00.000"),
    b'{"type":"assistant","sess',
)


def test_a_session_of_claude_code(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    (done,) = taken(lines(*CLAUDE), "c-1.jsonl")
    session = session_of(tree, done)
    assert told(session) == [
        ("run-1", "user", "prompt", "fix the parser"),
        ("run-1", "user", "follow-up", "only the lexer"),
        ("run-1", "assistant", "report", "Done."),
        ("run-2", "user", "prompt", "and the tests"),
        ("run-2", "system", "ended", "run-2 was cancelled: interrupted by the user"),
        ("run-3", "user", "prompt", "thanks"),
        ("run-3", "system", "ended", "run-3 failed: API Error: overloaded\nnot delivered: message 6"),
        ("run-4", "user", "prompt", "hello?"),
        ("run-4", "system", "ended", f"run-4 failed: {NOT_TOLD}\nnot delivered: message 8"),
    ]
    assert calls_of(session, "run-1") == [
        ("Read", "succeeded", "1 line", None),
        ("Bash", "failed", "refused\n[image, not taken in]", "the tool reported an error"),
    ]
    assert calls_of(session, "run-2") == [("Bash", "cancelled", None, NO_RESULT)]
    first = session.run("run-1").load()
    assert (first.created_at, first.terminal_at) == ("2026-02-01T10:00:00.000Z", "2026-02-01T10:00:08.000Z")
    # Of each reply the last word on what it used, with what came from the cache.
    assert (first.usage["turns"], first.usage["inputTokens"], first.usage["outputTokens"]) == (2, 210, 4)
    assert session.run("run-2").load().unresolved_operations == ()
    document = session.read()
    assert document.title == "The parser"
    assert document.extra["imported"] | {"sha256": "", "at": "", "bytes": 0} == {
        "kind": "claude-code", "name": "c-1.jsonl", "sha256": "", "bytes": 0, "sessionId": "c-1",
        "workingDirectory": "/work", "version": "2.1", "at": "",
        "passedOver": {
            "file-history-snapshot": 1, "note of the program": 1, "novelty": 1, "result of no call": 1, "side chain": 1,
            "thinking of the model": 1, "unfinished last line": 1, "unreadable line": 1,
        },
    }  # fmt: skip
    assert next(message.extra for message in session.messages_since(1)) == {"imported": {"id": "u-00:00.000"}}


def test_what_was_imported_goes_on(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    (done,) = taken(lines(*CLAUDE), new_id="mine")
    session = session_of(tree, done)
    assert session.session_id == "mine"
    assert trees.completed(session, "and on") == "run-5"
    fork = tree.fork_session(session, 3)
    assert trees.completed(fork, "instead") == "run-1"
    assert [each for each in check_session(tree, "mine", repair=False) if each.is_wrong] == []


def test_a_file_of_a_helper_is_a_conversation_of_its_own(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    helper = [said("look", "00:00.000", isSidechain=True), replied("m", "00:01.000", text("Seen."), isSidechain=True)]
    (done,) = taken(lines(*helper, said("not here", "00:02.000")))
    assert [each[3] for each in told(session_of(tree, done))] == ["look", "Seen."]


# Codex.


def row(kind: str, second: int, **payload: object) -> Doc:
    return {"timestamp": f"2026-03-01T09:00:{second:02d}.500Z", "type": kind, "payload": payload}


def item(second: int, kind: str, **more: object) -> Doc:
    return row("response_item", second, type=kind, **more)


def message(second: int, role: str, words: str) -> Doc:
    return item(second, "message", role=role, content=[{"type": "input_text", "text": words}])


CODEX = (
    row("session_meta", 0, id="x-1", timestamp="2026-03-01T09:00:00.100Z", cwd="/w", cli_version="0.171.0"),
    message(0, "developer", "be good"),
    message(0, "user", "<environment_context>here</environment_context>"),
    row("turn_context", 0, model="gpt-x"),
    message(1, "user", "count the files"),
    row("event_msg", 1, type="user_message", message="count the files"),
    item(2, "reasoning", summary=[]),
    message(2, "assistant", "I count."),
    item(3, "function_call", name="shell", arguments='{"command":["ls"]}', call_id="k1"),
    item(3, "custom_tool_call", name="apply_patch", input="*** Begin", call_id="k2"),
    row("event_msg", 3, type="token_count",
        info={"last_token_usage": {"input_tokens": 50, "cached_input_tokens": 30, "output_tokens": 9}}),
    item(4, "function_call_output", call_id="k1", output="a\nb"),
    item(5, "custom_tool_call_output", call_id="k2", output={"content": "no", "success": False}),
    message(6, "assistant", "Two."),
    row("event_msg", 6, type="agent_message", message="Two."),
    row("event_msg", 7, type="task_complete", last_agent_message="Two."),
    message(8, "user", "again"),
    item(9, "local_shell_call", action={"type": "exec", "command": ["ls"]}, call_id="k3"),
    row("event_msg", 10, type="turn_aborted", reason="interrupted"),
    row("compacted", 11, message="short"),
)  # fmt: skip


def test_a_session_of_codex(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    (done,) = taken(lines(*CODEX), "rollout-2026.jsonl")
    session = session_of(tree, done)
    assert told(session) == [
        ("run-1", "user", "prompt", "count the files"),
        ("run-1", "assistant", "report", "Two."),
        ("run-2", "user", "prompt", "again"),
        ("run-2", "system", "ended", "run-2 was cancelled: interrupted: interrupted"),
    ]
    assert calls_of(session, "run-1") == [
        ("shell", "succeeded", "a\nb", None),
        ("apply_patch", "failed", "no", "the tool reported an error"),
    ]
    first = next(turn.reply for turn in Transcript().catch_up(list(session.run("run-1").all_events())).turns)
    assert first is not None
    assert (first.text, [call["arguments"] for call in first.calls]) == ("I count.", [{"command": ["ls"]}, "*** Begin"])
    assert first.usage == {"inputTokens": 50, "outputTokens": 9, "cacheReadTokens": 30}
    imported = session.read().extra["imported"]
    assert (imported["kind"], imported["sessionId"], imported["version"]) == ("codex", "x-1", "0.171.0")
    assert imported["passedOver"] == {
        "compacted": 1, "message of developer": 1, "note of the program": 1, "reasoning": 1
    }  # fmt: skip
    assert session.read().created_at == "2026-03-01T09:00:00.100Z"


def test_a_file_of_the_first_versions_of_codex(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    old = (
        {"id": "x-0", "timestamp": "2025-05-01T00:00:00.000Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    )
    (done,) = taken(lines(*old))
    session = session_of(tree, done)
    assert [each[3] for each in told(session)] == ["hi", "Hello."]
    assert session.run("run-1").load().created_at == "2025-05-01T00:00:00.000Z"


# llm.

OLD_LLM = """
create table conversations (id text primary key, name text, model text);
create table responses (id text primary key, model text, prompt text, system text, prompt_json text, options_json text,
  response text, response_json text, conversation_id text, duration_ms integer, datetime_utc text,
  input_tokens integer, output_tokens integer, token_details text, schema_id text, resolved_model text);
create table tool_calls (id integer primary key, response_id text, tool_id integer, name text, arguments text,
  tool_call_id text);
create table tool_results (id integer primary key, response_id text, tool_id integer, name text, output text,
  tool_call_id text, instance_id integer, exception text);
create table fragments (id integer primary key, hash text, content text, datetime_utc text, source text);
create table prompt_fragments (response_id text, fragment_id integer, "order" integer);
insert into conversations values ('v1', 'How many?', 'm'), ('v2', 'Other', 'm');
insert into responses (id, model, prompt, system, response, conversation_id, duration_ms, datetime_utc, input_tokens)
  values ('r1', 'm', 'How many?', 'be brief', '', 'v1', 1500, '2025-01-01T00:00:00.250000+00:00', 7),
         ('r2', 'm', '', null, 'Two.', 'v1', 500, '2025-01-01T00:00:02+00:00', 9),
         ('r3', 'm', 'And now?', null, 'Still two.', 'v1', 500, '2025-01-01T00:01:00+00:00', null),
         ('r4', 'm', 'Sum up', null, 'Short.', 'v2', 500, '2025-01-02T00:00:00', null);
insert into tool_calls values (1, 'r1', 1, 'count', '{"what": "files"}', 'k1');
insert into tool_results values (1, 'r2', 1, 'count', '2', 'k1', null, null);
insert into fragments values (1, 'h', 'A long text', null, null);
insert into prompt_fragments values ('r4', 1, 0);
"""
NEW_LLM = """
create table threads (id text primary key, name text, tip_message_hash text, forked_from text, datetime_utc text);
create table turns (id text primary key, thread_id text, parent_message_hash text, tip_message_hash text, model text,
  resolved_model text, duration_ms integer, datetime_utc text, input_tokens integer, output_tokens integer);
create table messages (hash text primary key, parent_hash text, role text, provider_metadata text);
create table parts (id integer primary key, message_hash text, position integer, type text, tool_name text, text text,
  payload text);
insert into threads values ('w1', 'New', 'h6', null, null);
insert into turns values ('s1', 'w1', 'h2', 'h3', 'n', null, 10, '2026-05-01T00:00:00+00:00', 1, 2),
  ('s2', 'w1', 'h4', 'h5', 'n', null, 10, '2026-05-01T00:00:01+00:00', 3, 4);
insert into messages values ('h1', null, 'system', null), ('h2', 'h1', 'user', null), ('h3', 'h2', 'assistant', null),
  ('h4', 'h3', 'tool', null), ('h5', 'h4', 'assistant', null);
insert into parts values (1, 'h1', 0, 'text', null, 'be brief', null), (2, 'h2', 0, 'text', null, 'Use it', null),
  (3, 'h3', 0, 'tool_call', 'count', null, '{"name": "count", "arguments": {"a": 1}, "tool_call_id": "k9"}'),
  (4, 'h4', 0, 'tool_result', 'count', null, '{"name": "count", "output": "3", "tool_call_id": "k9"}'),
  (5, 'h5', 0, 'text', null, 'Three.', null);
"""


def database(tmp_path: Path, *scripts: str) -> bytes:
    path = tmp_path / "made.db"
    connection = sqlite3.connect(path)
    for script in scripts:
        connection.executescript(script)
    connection.close()
    return path.read_bytes()


def test_the_logs_of_llm_before_and_after_its_change(
    tree: Tree, taken: Callable[..., list[Taken]], tmp_path: Path
) -> None:
    done = taken(database(tmp_path, NEW_LLM, OLD_LLM), "logs.db")
    first, second, third = (session_of(tree, each) for each in done)
    assert [each[3] for each in told(first)] == ["Use it", "Three."]
    assert calls_of(first, "run-1") == [("count", "succeeded", "3", None)]
    assert [each[3] for each in told(second)] == ["How many?", "Two.", "And now?", "Still two."]
    assert calls_of(second, "run-1") == [("count", "succeeded", "2", None)]
    assert second.run("run-1").load().usage["inputTokens"] == 16
    request = next(e for e in second.run("run-1").all_events() if e.type == EventType.MODEL_REQUEST_FINISHED)
    assert request.at == "2025-01-01T00:00:01.750Z"
    assert [each[3] for each in told(third)] == ["A long text\n\nSum up", "Short."]
    assert second.read().extra["imported"]["passedOver"] == {"text of the system": 1}
    assert [each.read().extra["imported"]["sessionId"] for each in (first, second, third)] == ["w1", "v1", "v2"]


@pytest.mark.parametrize(
    "script",
    [
        "create view responses as select 1 id, 'm' model, 'hi' prompt, null system, 'ho' response, 1 conversation_id;",
        "create table unrelated (a);",
        # What is computed when it is read: gigabytes, from a file of 8 KiB.
        "create table responses (id, conversation_id, prompt, response as (hex(zeroblob(400000000))) stored);",
        "create table responses (id, conversation_id, prompt, response as (hex(zeroblob(400000000))));",
        (
            "pragma writable_schema = on; insert into sqlite_master values"
            " ('table', 'responses', 'responses', 0, 'create virtual table responses using fts5 (id)')"
        ),
    ],
)
def test_a_database_that_is_none_of_llm_is_refused_and_no_view_is_read(
    script: str, taken: Callable[..., list[Taken]], tmp_path: Path
) -> None:
    with pytest.raises(CorruptRecord, match="no database of llm"):
        taken(database(tmp_path, script), "logs.db")


def test_a_text_that_is_too_long_is_not_taken_out_of_a_database(
    taken: Callable[..., list[Taken]], tmp_path: Path
) -> None:
    # covers promise 16
    data = database(tmp_path, OLD_LLM, f"insert into responses (id, prompt) values ('r9', zeroblob({LONGEST + 1}))")
    with pytest.raises(CorruptRecord, match="too big"):
        taken(data, "logs.db")


def test_a_title_is_short_whatever_the_file_says(taken: Callable[..., list[Taken]]) -> None:
    """It stands in `session.json`, which every listing reads. # covers promise 16"""
    lines = [
        {"type": "summary", "leafUuid": "x", "summary": "first\n" + "x" * 10_000},
        {"type": "user", "sessionId": "s", "message": {"content": "hi"}},
        {"type": "assistant", "sessionId": "s", "message": {"id": "m", "content": "ho"}},
        {"type": "summary", "leafUuid": "x", "summary": "y" * 10_000},
    ]
    (session,) = taken("\n".join(map(json.dumps, lines)).encode(), "a.jsonl")
    assert session.session.title == "y" * 79 + "…"


def test_a_damaged_database_leaves_nothing(tree: Tree, taken: Callable[..., list[Taken]], tmp_path: Path) -> None:
    data = database(tmp_path, OLD_LLM, "insert into responses (id, prompt) values ('r9', '" + "x" * 100_000 + "')")
    with pytest.raises(CorruptRecord):
        taken(data[:9000], "logs.db")
    assert tree.session_ids() == []


# Whatever they hold.

HOSTILE: tuple[object, ...] = (
    None, True, 7, -1, 1e999, "", "\ud800", "\x1b[2J", "../..", [], [[]], {}, [None], [{"type": None}], {"a": {}},
)  # fmt: skip
FIELDS = (
    "type", "sessionId", "uuid", "timestamp", "message", "payload", "cwd", "version", "isSidechain", "id", "summary",
)  # fmt: skip


@pytest.mark.parametrize("sample", [CLAUDE, CODEX], ids=["claude-code", "codex"])
def test_no_value_in_any_field_does_harm(
    sample: tuple[Doc | bytes, ...], tree: Tree, taken: Callable[..., list[Taken]]
) -> None:
    """Each field, and each of the message or payload, with each value: what comes in is whole."""
    whole = [doc for doc in sample if isinstance(doc, dict)]
    spoiled: list[Doc] = []
    for number, value in enumerate(HOSTILE):
        doc = whole[number % len(whole)]
        spoiled += [doc | {field: value} for field in FIELDS]
        for inner in ("message", "payload"):
            if isinstance(doc.get(inner), dict):
                spoiled += [doc | {inner: doc[inner] | {field: value}} for field in doc[inner]]
                content = doc[inner].get("content")
                if isinstance(content, list) and content and isinstance(content[0], dict):
                    spoiled += [
                        doc | {inner: doc[inner] | {"content": [content[0] | {field: value}]}} for field in content[0]
                    ]
    kind = "codex" if sample is CODEX else "claude-code"
    for done in taken(lines(*whole[:4], *spoiled, *whole), kind=kind):
        session_of(tree, done)


def test_a_line_that_never_ends_and_one_that_is_nested_too_deep_are_passed_over(
    tree: Tree, taken: Callable[..., list[Taken]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrun.adapters.foreign.lines.LONGEST", 5_000)
    deep = b'{"type":"user","message":' + b'{"a":' * 2_000 + b"1" + b"}" * 2_000 + b"}\n"
    long = b'{"type":"user","x":"' + b"x" * 20_000 + b'"}\n'
    (done,) = taken(lines(said("hi", "00:00.000"), deep, long, replied("m", "00:01.000", text("Hello."))))
    assert [each[3] for each in told(session_of(tree, done))] == ["hi", "Hello."]
    assert sum(done.passed_over.values()) == 2


def test_a_long_output_is_kept_beside_the_line(tree: Tree, taken: Callable[..., list[Taken]]) -> None:
    output = "é" * 40_000
    (done,) = taken(
        lines(
            said("go", "00:00.000"), replied("m1", "00:01.000", use("t1")), said([result("t1", output)], "00:02.000"),
            replied("m2", "00:03.000", text("Done.")),
        )
    )  # fmt: skip
    session = session_of(tree, done)
    finished = next(e for e in session.run("run-1").all_events() if e.type == EventType.TOOL_FINISHED)
    assert (session.run("run-1").blob(finished.payload["blob"]["sha256"]) or b"").decode() == output
    assert len(json.dumps(finished.payload, ensure_ascii=False).encode()) < 34_000


@pytest.mark.parametrize("data", [b"", b"hello\n", b"[1]\n", b'{"a": 1}\n', b"\0" * 600])
def test_what_nobody_can_tell_is_refused(data: bytes, taken: Callable[..., list[Taken]], tree: Tree) -> None:
    with pytest.raises(UsageError, match="nobody here can tell"):
        taken(data)
    for kind in FORMATS[1:]:
        with pytest.raises(AgentrunError):
            taken(data, kind=kind)
    assert tree.session_ids() == []


def test_what_is_compressed_is_told_with_how_to_unpack_it(taken: Callable[..., list[Taken]]) -> None:
    with pytest.raises(UsageError, match="is compressed") as caught:
        taken(gzip.compress(b"an archive"))
    assert caught.value.hint == "unpack it: gzip -dc FILE | agentrun import -"


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(taken: Callable[..., list[Taken]]) -> None:
    """Editors put one there. It is one in the first line only."""
    mark = b"\xef\xbb\xbf"
    (done,) = taken(mark + lines(CLAUDE[0], said("go", "00:00.000"), mark + b"{}\n"))
    assert (done.session.title, done.passed_over) == ("The parser", {"unreadable line": 1})


def test_what_a_file_is_is_told_by_what_it_holds() -> None:
    for sample, kind in ((CLAUDE, "claude-code"), (CODEX, "codex")):
        source = io.BytesIO(lines({"type": "mode"}, *sample))
        assert kind_of(source, "x") == kind
        assert source.tell() == 0
