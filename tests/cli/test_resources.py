"""Two writes on one resource do not meet: the second is skipped and told who has it, until the first is settled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow


def an_export(home: Home, script: str, **settings: Any) -> None:
    home.tool("export", script, **({"effect": "write", "approve": "auto", "resource": "warehouse"} | settings))
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})


def waiting(home: Home) -> str:
    return f"""echo x >> {home.path}/effects; echo '{{"remoteId":"job-7"}}' >&3; {home.gate()}"""


def ended(home: Home, run: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in home.events(run, "tool.finished")]


def effects(home: Home) -> int:
    path = home.path / "effects"
    return path.read_text().count("x") if path.exists() else 0


def claims(home: Home) -> list[str]:
    path = home.sessions.parent / "resources"
    return sorted(each.name for each in path.iterdir()) if path.exists() else []


def test_a_call_is_skipped_while_another_session_writes_there(home: Home) -> None:
    # covers A69 B31
    an_export(home, waiting(home))
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "tool.remote_id")
    assert claims(home) == ["warehouse"]
    second = home.new()
    assert home.run("send", second, "x").code == 0
    (skipped,) = ended(home, second)
    assert (skipped["status"], skipped["attempt"]) == ("skipped", 0)
    assert f"claimed by op-2 (export, remote id job-7) of {run}, which is under way" in skipped["error"]
    assert home.events(second, "tool.started") == []
    assert "is claimed by" in home.run("show", f"{second}/1").text
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert claims(home) == []
    assert home.run("send", second, "again").code == 0
    assert [each["status"] for each in ended(home, f"{second}/run-2")] == ["succeeded"]
    assert effects(home) == 2


def test_a_call_is_held_back_by_what_is_unresolved_until_it_is_settled(home: Home, until: Callable[..., Any]) -> None:
    # covers A35 A52 A69
    answer = home.path / "answer"
    answer.write_text('{"status":"unknown"}')
    an_export(home, waiting(home), probe=["cat", str(answer)])
    session = home.new()
    run = home.detach(session, "x")
    home.wait_for_event(run, "tool.remote_id")
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost")
    assert home.run("cancel", run).code == 0
    assert claims(home) == ["warehouse"]
    # In the same session as in another one.
    for number, other in ((2, session), (1, home.new())):
        assert home.run("send", other, "x").code == 0
        (skipped,) = ended(home, f"{other}/run-{number}")
        assert f"of {run}, of which nobody knows yet what it did" in skipped["error"]
    assert effects(home) == 1
    # The list names what is held; the user's word frees it.
    assert "warehouse" in home.run("reconcile", run).text
    assert home.run("reconcile", run, "op-2", "--as", "failed").code == 0
    assert claims(home) == []
    home.open_gate()
    third = home.new()
    assert home.run("send", third, "x").code == 0
    assert [each["status"] for each in ended(home, third)] == ["succeeded"]


def test_what_the_probe_settles_at_the_end_frees_the_resource(home: Home) -> None:
    # covers A60 A69
    an_export(home, waiting(home), probe=["echo", '{"status":"succeeded"}'])
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "tool.remote_id")
    assert home.run("cancel", run, "--wait").code == 0
    assert claims(home) == []
    home.open_gate()
    second = home.new()
    assert home.run("send", second, "x").code == 0
    assert [each["status"] for each in ended(home, second)] == ["succeeded"]


def test_of_two_calls_of_one_reply_one_is_made(home: Home) -> None:
    # covers A69
    an_export(home, f"echo x >> {home.path}/effects; {home.gate()}")
    home.model({"calls": [{"name": "export"}, {"name": "export"}]}, {"text": "a report"})
    session = home.new()
    sending = home.start("send", session, "x")
    # The one is turned away while the other is at work.
    home.wait_for_event(session, "tool.finished")
    home.open_gate()
    assert sending.end().code == 0
    assert sorted(each["status"] for each in ended(home, session)) == ["skipped", "succeeded"]
    assert effects(home) == 1


def test_a_retry_keeps_its_own_claim(home: Home) -> None:
    an_export(home, f"echo x >> {home.path}/effects; test $(wc -l < {home.path}/effects) -gt 2 || exit 75", retries=2)
    session = home.new()
    assert home.run("send", session, "x").code == 0
    assert ended(home, session)[-1]["status"] == "succeeded"
    assert effects(home) == 3
    assert claims(home) == []


def test_of_many_runs_that_start_at_once_one_writes_at_a_time(home: Home) -> None:
    # covers A69
    """Each marks its beginning and its end: no two of them are inside at the same time."""
    inside = home.path / "inside"
    script = f"mkdir {inside} || exit 9; sleep 0.3; rmdir {inside}; echo x >> {home.path}/effects"
    an_export(home, script)
    sessions = [home.new() for _ in range(6)]
    running = [home.start("send", session, "x") for session in sessions]
    assert [each.end().code for each in running] == [0] * 6
    statuses = [ended(home, session)[0]["status"] for session in sessions]
    assert set(statuses) <= {"skipped", "succeeded"}
    assert statuses.count("succeeded") == effects(home) >= 1
    assert claims(home) == []


def test_reads_and_writes_without_a_resource_claim_nothing(home: Home) -> None:
    home.tool("look", "true", resource="warehouse")
    home.tool("write", "true", effect="write", approve="auto")
    home.model({"calls": [{"name": "look"}, {"name": "write"}]}, {"text": "a report"})
    assert home.run("send", home.new(), "x").code == 0
    assert claims(home) == []
