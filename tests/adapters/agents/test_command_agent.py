"""Agents that are commands, with real processes, in a stretch without a disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.agents import prompt, turns
from agentrun.adapters.agents.command import CommandAgent
from agentrun.adapters.process.tree import read_proc
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import Conversation
from agentrun.config import AgentConfig
from agentrun.records.message import Message
from agentrun.records.operation import Operation
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.stretch import FakeStretch

E = EventType
S = OperationStatus


def agent(directory: Path, script: str, *arguments: str, **config: Any) -> CommandAgent:
    """An agent that is a shell script; `$1` is the first of `arguments`."""
    surroundings = Surroundings(
        root=str(directory / "root"),
        config_path=None,
        account="ann",
        session_id="session-test",
        run_id="run-1",
        scratch=str(directory),
        working_directory=str(directory),
        environment={"PATH": os.environ["PATH"], "OPENAI_API_KEY": "secret"},
    )
    command = ("sh", "-c", script, "sh", *arguments)
    config = {"kind": "command", "command": command} | config
    return CommandAgent(
        AgentConfig("cli", **config), surroundings, directory=str(directory), secrets={"OPENAI_API_KEY"}
    )


def drive(stretch: FakeStretch, driven: CommandAgent) -> RunStatus:
    return anyio.run(stretch.drive, driven)


def tools(stretch: FakeStretch) -> list[Operation]:
    return [each for each in stretch.operations if each.kind == "tool"]


def finished(stretch: FakeStretch) -> list[dict[str, Any]]:
    return [event.payload for event in stretch.events if event.type == E.MODEL_REQUEST_FINISHED]


def test_the_prompt_comes_on_stdin_and_what_is_printed_is_the_report(tmp_path: Path) -> None:
    stretch = FakeStretch("count the lamps")
    assert drive(stretch, agent(tmp_path, 'echo "you said: $(cat)"')) is RunStatus.COMPLETED
    assert stretch.report == "you said: count the lamps\n"
    (operation,) = stretch.operations
    assert (operation.name, operation.status) == ("command:cli", S.SUCCEEDED)


def test_the_prompt_takes_the_place_of_its_placeholder_and_nothing_in_it_is_one(tmp_path: Path) -> None:
    stretch = FakeStretch("a {session} of {prompt}")
    driven = agent(tmp_path, 'printf "%s|%s" "$1" "$(cat)"', "--ask={prompt}")
    assert drive(stretch, driven) is RunStatus.COMPLETED
    assert stretch.report == "--ask=a {session} of {prompt}|"


def test_it_runs_where_the_session_was_made_with_the_environment_of_a_tool(tmp_path: Path) -> None:
    stretch = FakeStretch()
    show = 'pwd; echo "$AGENTRUN_SESSION/$AGENTRUN_RUN $AGENTRUN_OPERATION ${AGENTRUN_IDEMPOTENCY_KEY:+key}"; '
    driven = agent(tmp_path, show + 'echo "<$OPENAI_API_KEY>"')
    assert drive(stretch, driven) is RunStatus.COMPLETED
    assert stretch.report == f"{tmp_path}\nsession-test/run-1 op-1 key\n<>\n"


def test_what_is_printed_is_the_draft_before_the_command_ends(tmp_path: Path) -> None:
    # covers A41
    stretch = FakeStretch()
    goes_on = tmp_path / "goes-on"

    def look(op: str, piece: str, add: Any = stretch.draft) -> Any:
        goes_on.touch()
        return add(op, piece)

    stretch.draft = look  # type: ignore[method-assign]
    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.01; done; echo second'
    assert drive(stretch, agent(tmp_path, script, str(goes_on))) is RunStatus.COMPLETED
    assert stretch.drafts == {"op-1": "first\nsecond\n"}
    assert stretch.report == "first\nsecond\n"


def test_a_character_that_is_cut_in_two_by_a_read_stays_whole(tmp_path: Path) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, r"printf 'gr\303'; sleep 0.05; printf '\274n \377'")) is RunStatus.COMPLETED
    assert stretch.report == "grün \ufffd"


def test_a_failure_is_the_exit_code_and_the_end_of_stderr(tmp_path: Path) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, "echo half; echo no key >&2; exit 3")) is RunStatus.FAILED
    assert stretch.run.reason == "the agent command:cli failed: exit 3: no key"
    assert [(each["status"], each["text"]) for each in finished(stretch)] == [("failed", "half\n")]
    assert stretch.open_at_end == ()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("true", "said nothing"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("exit 75", "exit 75"),
    ],
)
def test_an_end_without_a_report_fails(tmp_path: Path, script: str, reason: str) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, script)) is RunStatus.FAILED
    assert reason in str(stretch.run.reason)


def test_a_program_that_is_not_there_fails_the_run_and_says_which(tmp_path: Path) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, "", command=("no-such-agent",))) is RunStatus.FAILED
    assert "cannot start 'no-such-agent'" in str(stretch.run.reason)


def test_a_relative_program_lies_below_the_configuration(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "me"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho me\n")
    program.chmod(0o700)
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, "", command=("./bin/me",))) is RunStatus.COMPLETED


def test_one_that_prints_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_TEXT", 100_000)
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, "yes")) is RunStatus.FAILED
    assert "said more than 100000" in str(stretch.run.reason)


def test_a_stop_ends_the_command_and_all_it_started(tmp_path: Path) -> None:
    # covers A46; case C7
    stretch = FakeStretch()
    left = tmp_path / "left"

    def cancel(op: str, piece: str, add: Any = stretch.draft) -> Any:
        stretch.cancel()
        return add(op, piece)

    stretch.draft = cancel  # type: ignore[method-assign]
    script = (
        'setsid sh -c "echo \\$\\$ > $1; exec sleep 1000" & while [ ! -s "$1" ]; do sleep 0.01; done; echo go; wait'
    )
    assert drive(stretch, agent(tmp_path, script, str(left))) is RunStatus.CANCELLED
    one = read_proc(int(left.read_text()))
    assert one is None or not one.alive
    assert [(each["status"], each["text"]) for each in finished(stretch)] == [("cancelled", "go\n")]
    assert stretch.open_at_end == ()


def test_what_the_user_adds_meanwhile_reaches_the_next_start(tmp_path: Path) -> None:
    stretch = FakeStretch("count")
    stretch.at(E.MODEL_REQUEST_STARTED, lambda each: each.follow_up("and the chairs"))
    stretch.at(E.MODEL_REQUEST_STARTED, lambda each: each.steer("only red ones"))
    assert drive(stretch, agent(tmp_path, "cat; echo .")) is RunStatus.COMPLETED
    first, second = (each["text"] for each in finished(stretch))
    assert first == "count.\n"
    assert "User: count" in second
    assert "You: count.\n" in second
    assert second.endswith("and the chairs\n\nonly red ones.\n")


def test_one_that_forgets_is_told_the_conversation_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "TOLD_AGAIN", 40)
    said = [("user", "x" * 100), ("user", "how many?"), ("assistant", "12 lamps")]
    messages = [Message(n, "s", "run-0", role, "prompt", text, "") for n, (role, text) in enumerate(said)]
    stretch = FakeStretch("sure?", conversation=Conversation(messages, {"run-0": "# Stock"}))
    assert drive(stretch, agent(tmp_path, "cat")) is RunStatus.COMPLETED
    report = str(stretch.report)
    assert report.startswith("[The conversation so far]\n\n[...]\n\nUser: how many?\n\nYou: 12 lamps\n\n")
    assert "[The report of run-0, which the user cites]\n# Stock" in report
    assert report.endswith("\n\nsure?")


# JSON lines.

STEPS = """cat <<'END'
{"type": "session", "id": "thread-7"}
{"type": "text", "text": "I look. "}
{"type": "tool", "id": "t1", "name": "search", "arguments": {"q": "lamps"}, "effect": "read"}
{"type": "tool", "id": "t1", "name": "search", "status": "succeeded", "result": "12"}
{"type": "tool", "id": "t2", "name": "edit", "status": "failed", "error": "read-only"}
{"type": "usage", "inputTokens": 10, "outputTokens": 2}
{"type": "usage", "inputTokens": 5, "outputTokens": 1}
{"type": "thinking", "text": "of no use here"}
not json
{"type": "text", "text": "There are 12."}
END
"""


def test_json_lines_are_text_tools_usage_and_the_name_of_the_conversation(tmp_path: Path) -> None:
    # covers A26
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, STEPS)) is RunStatus.COMPLETED
    assert stretch.report is not None
    assert stretch.report.startswith("I look. There are 12.\n\n## Gaps\n")
    search, edit = tools(stretch)
    assert (search.name, search.status, search.effect, search.result) == ("search", S.SUCCEEDED, "read", "12")
    assert search.arguments == {"q": "lamps"}
    assert (edit.name, edit.status, edit.effect, edit.error) == ("edit", S.FAILED, "write", "read-only")
    (reply,) = finished(stretch)
    assert reply["usage"] == {"inputTokens": 15, "outputTokens": 3}
    assert reply["extra"] == {"ignoredLines": 2}
    assert stretch.remote_ids.get("command:cli") == "thread-7"


def test_one_that_remembers_hears_only_what_is_new_and_is_started_to_go_on(tmp_path: Path) -> None:
    # covers A26
    messages = [Message(1, "s", "run-0", "user", "prompt", "before", "")]
    stretch = FakeStretch("now", conversation=Conversation(messages, {}))
    stretch.remote_ids.keep("command:cli", "thread-7")
    resume = ("sh", "-c", 'printf "%s %s: " "$1" "$AGENTRUN_REMOTE_SESSION"; cat', "sh", "--resume={session}")
    assert drive(stretch, agent(tmp_path, "exit 1", resume=resume)) is RunStatus.COMPLETED
    assert stretch.report == "--resume=thread-7 thread-7: now"


def test_a_question_waits_for_its_answer_which_the_next_start_gets(tmp_path: Path) -> None:
    script = 'if grep -q red; then echo "12 red ones"; else echo \'{"type":"question","text":"which?"}\'; fi'
    stretch = FakeStretch("count")
    assert drive(stretch, agent(tmp_path, script)) is RunStatus.WAITING_INPUT
    assert (stretch.run.waiting_for or {})["text"] == "which?"
    stretch = FakeStretch("count")
    stretch.answers = ["the red ones"]
    assert drive(stretch, agent(tmp_path, script)) is RunStatus.COMPLETED
    assert stretch.report == "12 red ones\n"


def test_a_report_line_replaces_what_was_said_on_the_way(tmp_path: Path) -> None:
    stretch = FakeStretch()
    script = """echo '{"type":"text","text":"hm"}'; echo '{"type":"report","text":"# All"}'"""
    assert drive(stretch, agent(tmp_path, script)) is RunStatus.COMPLETED
    assert stretch.report == "# All"


def test_an_error_line_fails_the_run(tmp_path: Path) -> None:
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, """echo '{"type":"error","text":"no credit"}'""")) is RunStatus.FAILED
    assert stretch.run.reason == "the agent command:cli failed: no credit"


@pytest.mark.parametrize(
    ("printed", "output"),
    [
        (b'{"answer": 12}\n', "auto"),
        (b'{"answer": 12}', "auto"),
        (b"\n\n# {Title}\n", "auto"),
        (b'{"type": "text", "text": "no"}\n', "text"),
        (b"{" + b"x" * 100_000, "auto"),
        (b"\n" * 100_000 + b"x", "auto"),
    ],
)
def test_other_output_is_text_as_it_is(tmp_path: Path, printed: bytes, output: str) -> None:
    (tmp_path / "said").write_bytes(printed)
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, "cat said", output=output)) is RunStatus.COMPLETED
    assert stretch.report == printed.decode()


def test_a_call_without_an_end_is_recorded_as_what_is_known_of_it(tmp_path: Path) -> None:
    # covers A45
    write, read = '{"type":"tool","name":"edit"}', '{"type":"tool","name":"see","effect":"read"}'
    begun = f"echo '{write}'; echo '{read}'"
    stretch = FakeStretch()
    assert drive(stretch, agent(tmp_path, f"{begun}; exit 1")) is RunStatus.FAILED
    assert [(each.status, each.may_have_effects) for each in tools(stretch)] == [
        (S.CANCELLED, True),
        (S.CANCELLED, False),
    ]
    stretch = FakeStretch()
    say = """echo '{"type":"text","text":"done"}'"""
    assert drive(stretch, agent(tmp_path, f"{begun}; {say}")) is RunStatus.COMPLETED
    assert [each.status for each in tools(stretch)] == [S.UNKNOWN, S.CANCELLED]


# Broken off.


def broken_off(tmp_path: Path) -> FakeStretch:
    """The stretch after one whose executor went while the command was under way."""
    stretch = FakeStretch("count")
    stretch.at(E.MODEL_REQUEST_STARTED, FakeStretch.hand_over)
    drive(stretch, agent(tmp_path, "sleep 1000"))
    return FakeStretch.after(stretch.events, stretch.messages)


def test_a_turn_that_was_broken_off_is_not_begun_again_unless_the_user_says_so(tmp_path: Path) -> None:
    # covers A45
    stretch = broken_off(tmp_path)
    assert drive(stretch, agent(tmp_path, "cat")) is RunStatus.WAITING_INPUT
    assert len(stretch.operations) == 1
    stretch = broken_off(tmp_path)
    stretch.answers = ["again"]
    assert drive(stretch, agent(tmp_path, "cat")) is RunStatus.COMPLETED
    assert stretch.report == f"{prompt.INTERRUPTED}\n\ncount\n\nagain"


def test_one_that_changes_nothing_is_begun_again_at_once(tmp_path: Path) -> None:
    stretch = broken_off(tmp_path)
    assert drive(stretch, agent(tmp_path, "cat", effect="read")) is RunStatus.COMPLETED
    assert str(stretch.report).endswith("count")
