"""A run is stopped while its tool waits for a job outside: the job is asked to stop, and what is known is recorded.

The world outside is a file: `job` holds the state of the only job there is, `asked` who asked for what.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow

STATE = 'printf \'{"status":"%s","result":"12 rows"}\' "$(cat job)"'
CANCEL = "echo cancel $(cat) >> asked; echo failed > job"
PROBE = f"echo probe $(cat) >> asked; {STATE}"


def an_export(home: Home, **commands: str) -> None:
    """An agent whose tool starts a job and waits for it; `commands` are `probe` and `cancel` in shell, and times."""
    asking: dict[str, Any] = {
        name: ["/bin/sh", "-c", value] if name in ("probe", "cancel") else value for name, value in commands.items()
    }
    start = f"""echo x >> started; echo running > job; echo '{{"remoteId":"job-7"}}' >&3; {home.gate()}"""
    settings = {
        "effect": "write",
        "approve": "auto",
        "resource": "warehouse",
        "grace": "400ms",
        "kill_timeout": "20s",
    } | asking
    home.tool("export", start, **settings)
    home.model({"calls": [{"name": "export"}]}, {"text": "a report: {{op:export}}"})


def an_export_under_way(home: Home, **commands: str) -> str:
    an_export(home, **commands)
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "tool.remote_id")
    return run


def asked(home: Home) -> list[str]:
    path = home.path / "asked"
    return path.read_text().splitlines() if path.exists() else []


def found(home: Home, run: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in home.events(run, "operation.reconciled")]


def kill_executor(home: Home, run: str, until: Callable[..., Any]) -> None:
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost")


def test_a_cancelled_run_asks_for_its_job_to_be_stopped(home: Home) -> None:
    # covers A43 A45 A46 A49 A51 B28
    run = an_export_under_way(home, cancel=CANCEL, probe=PROBE)
    assert home.run("cancel", run, "--wait").code == 0
    (registered,) = home.events(run, "tool.registered")
    said = json.dumps({"remoteId": "job-7", "idempotencyKey": registered["payload"]["idempotencyKey"]})
    assert [line.replace(" ", "") for line in asked(home)] == [
        f"{verb}{said}".replace(" ", "") for verb in ("cancel", "probe")
    ]
    (finding,) = found(home, run)
    assert (finding["operationId"], finding["status"]) == ("op-2", "cancelled")
    assert finding["evidence"] == "its cancel ended well and said nothing; its probe said: failed"
    view = home.view(run)
    assert (view["status"], view["unresolvedOperations"]) == ("cancelled", [])
    types = [event["type"] for event in home.events(run)]
    assert types[types.index("run.cancel_requested") :] == [
        "run.cancel_requested",
        "tool.finished",
        "operation.reconciled",
        "run.finished",
    ]
    assert (home.path / "started").read_text() == "x\n"
    assert home.marked() == []


def test_the_canceller_asks_where_the_executor_is_dead(home: Home, until: Callable[..., Any]) -> None:
    # covers A34 A40 A45 A60  # case C9
    run = an_export_under_way(home, cancel=CANCEL, probe=PROBE)
    kill_executor(home, run, until)
    cancelled = home.run("cancel", run)
    assert (cancelled.code, cancelled.text) == (0, f"{run} cancelled\n")
    assert [line.split()[0] for line in asked(home)] == ["cancel", "probe"]
    (finding,) = found(home, run)
    assert finding["status"] == "cancelled"
    assert home.view(run)["unresolvedOperations"] == []
    assert (home.path / "started").read_text() == "x\n"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_job_that_was_done_by_then_is_recorded_with_its_result(
    home: Home, until: Callable[..., Any], is_lost: bool
) -> None:
    # covers A49 A52
    run = an_export_under_way(home, probe=PROBE)
    (home.path / "job").write_text("succeeded")
    if is_lost:
        kill_executor(home, run, until)
    home.run("cancel", run, "--wait")
    (finding,) = found(home, run)
    assert (finding["status"], finding["result"]) == ("succeeded", "12 rows")
    shown = home.run("show", run, "--json").docs[0]
    assert shown["run"]["status"] == "cancelled"
    assert shown["run"]["unresolvedOperations"] == []
    assert not (home.run_dir(run) / "report.md").exists()


@pytest.mark.parametrize(
    ("commands", "evidence"),
    [
        ({"probe": PROBE}, "its probe said: running"),
        ({"cancel": "echo no >&2; exit 1"}, "its cancel failed (exit 1): no"),
        ({"cancel": "exit 1", "probe": PROBE}, "its cancel failed (exit 1); its probe said: running"),
        ({"cancel": ":", "probe": PROBE}, "its cancel ended well and said nothing; its probe said: running"),
        ({"cancel": """echo '{"status":"running"}'"""}, "its cancel said: running"),
        ({"cancel": ":", "probe": "exit 9"}, "its cancel ended well and said nothing; its probe failed (exit 9)"),
    ],
)
def test_what_stays_unresolved_is_handed_over_everywhere(home: Home, commands: dict[str, str], evidence: str) -> None:
    # covers A35 A45 A51 A52
    run = an_export_under_way(home, **commands)
    cancelled = home.run("cancel", run, "--wait")
    assert cancelled.code == 0
    (finding,) = found(home, run)
    assert (finding["status"], finding["evidence"]) == ("unknown", evidence)
    for said in (cancelled.said, home.run("show", run).text, home.run("show", run, "--messages").text):
        assert "unresolved" in said
        assert "job-7" in said
        assert "warehouse" in said
    assert "unresolved" in home.run("ls").text
    for listed in (
        home.run("cancel", run, "--json").docs[0],
        json.loads((home.run_dir(run) / "run.json").read_bytes()),
    ):
        assert [(each["operationId"], each["remoteId"]) for each in listed["unresolvedOperations"]] == [
            ("op-2", "job-7")
        ]
    (finished,) = home.events(run, "run.finished")
    assert finished["payload"]["unresolvedOperations"] == ["op-2"]


def test_cancelled_is_not_written_before_everybody_was_asked(home: Home, until: Callable[..., Any]) -> None:
    # covers A48 A51
    run = an_export_under_way(home, cancel=f"echo cancel >> asked; {home.gate('asked-to-stop')}")
    assert home.run("cancel", run).code == 6
    until(lambda: asked(home))
    assert home.status(run) == "cancelling"
    assert home.events(run, "run.finished") == []
    home.open_gate("asked-to-stop")
    home.wait_for_status(run, "cancelled")
    assert [each["status"] for each in found(home, run)] == ["cancelled"]


def test_a_command_that_never_answers_holds_the_end_up_for_a_bounded_time(
    home: Home, until: Callable[..., Any]
) -> None:
    # covers A51 B31
    run = an_export_under_way(home, probe="setsid sleep 600 & trap '' TERM; while :; do sleep 0.1; done")
    kill_executor(home, run, until)
    home.config.write_text(home.config.read_text() + 'timeout = "1s"\n')
    assert home.run("cancel", run, patience=100).code == 0
    (finding,) = found(home, run)
    assert (finding["status"], finding["evidence"]) == ("unknown", "its probe did not answer within 1 s")
    assert home.marked() == []


HANGS = "trap '' TERM; while :; do sleep 0.05; done"


@pytest.mark.parametrize("way", ["run", "--op"])
def test_commands_that_hang_hold_the_end_up_for_what_the_tool_is_configured_to_take(home: Home, way: str) -> None:
    # covers A45 A51
    run = an_export_under_way(home, cancel=HANGS, probe=HANGS, kill_timeout="300ms", grace="100ms")
    operation = ["--op", "op-2"] if way == "--op" else []
    assert home.run("cancel", run, *operation, "--wait").code == 0
    said = "its cancel did not answer within 0.4 s; its probe did not answer within 0.4 s"
    if way == "run":
        assert [(each["status"], each["evidence"]) for each in found(home, run)] == [("unknown", said)]
    else:
        (ended,) = home.events(run, "tool.finished")
        assert (ended["payload"]["mayHaveEffects"], ended["payload"]["note"]) == (True, said)
        home.wait_for_status(run, "completed")
    assert [each["remoteId"] for each in home.view(run)["unresolvedOperations"]] == ["job-7"]
    assert home.marked() == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_force_waits_for_nobody_outside_and_says_that_nobody_answered(
    home: Home, until: Callable[..., Any], is_lost: bool
) -> None:
    # covers A51 A52: a grace that no test could wait for
    run = an_export_under_way(home, cancel=f"touch asked; {HANGS}", probe=HANGS, grace="600s", kill_timeout="30s")
    if is_lost:
        kill_executor(home, run, until)
    waiting = home.start("cancel", run, "--wait")
    until((home.path / "asked").exists)
    assert home.status(run) == "cancelling"
    assert home.run("cancel", run, "--force", "--wait").code == 0
    assert waiting.end().code == 0
    (finding,) = found(home, run)
    assert finding["status"] == "unknown"
    assert "nobody had answered" in finding["evidence"]
    assert [each["remoteId"] for each in home.view(run)["unresolvedOperations"]] == ["job-7"]
    assert home.marked() == []


@pytest.mark.parametrize(
    ("probe", "status", "told"),
    [
        ({"probe": PROBE}, "cancelled", "The call was stopped"),
        ({}, "cancelled", "The call was stopped"),
        ({"probe": """echo '{"status":"succeeded","result":"12 rows"}'"""}, "succeeded", "12 rows"),
    ],
)
def test_one_operation_that_is_stopped_alone_has_its_job_stopped(
    home: Home, probe: dict[str, str], status: str, told: str
) -> None:
    # covers A42 A45 A46 A49
    run = an_export_under_way(home, cancel=CANCEL, **probe)
    assert home.run("cancel", run, "--op", "op-2", "--wait").code == (0 if status == "cancelled" else 7)
    home.wait_for_status(run, "completed")
    assert asked(home)[0].startswith("cancel")
    (ended,) = home.events(run, "tool.finished")
    assert (ended["payload"]["status"], ended["payload"]["mayHaveEffects"]) == (status, False)
    assert "its cancel ended well" in ended["payload"]["note"]
    assert home.view(run)["unresolvedOperations"] == []
    assert told in (home.run_dir(run) / "report.md").read_text()
    assert (home.path / "started").read_text() == "x\n"


def test_two_jobs_are_asked_for_side_by_side(home: Home) -> None:
    """Each waits until the other one is asked."""
    for name, other in (("one", "two"), ("two", "one")):
        cancel = f"touch {home.path}/{name}; {home.gate(other)}"
        settings = {"effect": "write", "approve": "auto", "cancel": ["/bin/sh", "-c", cancel]}
        home.tool(name, f"""echo '{{"remoteId":"{name}"}}' >&3; {home.gate()}""", **settings)
    home.model({"calls": [{"name": "one"}, {"name": "two"}]}, {"text": "never"})
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "tool.remote_id", 2)
    assert home.run("cancel", run, "--wait").code == 0
    assert [each["status"] for each in found(home, run)] == ["cancelled"] * 2


def test_a_run_whose_configuration_is_gone_is_wound_down_all_the_same(home: Home, until: Callable[..., Any]) -> None:
    # covers A35 A52
    run = an_export_under_way(home, cancel=CANCEL, probe=PROBE)
    kill_executor(home, run, until)
    home.config.unlink()
    cancelled = home.run("cancel", run)
    assert (cancelled.code, cancelled.text) == (0, f"{run} cancelled\n")
    assert "job-7" in cancelled.said
    assert asked(home) == []
    assert [each["remoteId"] for each in home.view(run)["unresolvedOperations"]] == ["job-7"]


def test_a_deadline_and_a_failure_ask_as_well(home: Home) -> None:
    # covers A43 A54
    an_export(home, cancel=CANCEL)
    # Longer on a machine that takes so long to begin the job.
    for timeout in ("1500ms", "8s", "25s"):
        session = home.new()
        assert home.run("send", session, "x", "--timeout", timeout).code == 4
        if home.events(session, "tool.remote_id"):
            break
    assert [each["status"] for each in found(home, session)] == ["cancelled"]
    assert home.view(f"{session}/1")["unresolvedOperations"] == []


def test_ctrl_c_asks_as_well(home: Home) -> None:
    # covers A43 B28
    an_export(home, cancel=CANCEL)
    session = home.new()
    sending = home.start("send", session, "x")
    home.wait_for_event(session, "tool.remote_id")
    sending.signal(signal.SIGINT)
    assert sending.end().code == 130
    assert [each["status"] for each in found(home, session)] == ["cancelled"]
    assert home.status(session) == "cancelled"


def test_a_write_is_tried_again_only_if_its_probe_says_that_it_did_not_happen(home: Home) -> None:
    # covers A9 A37 A60 B38
    """Cut off before the effect once, then after it; then nobody knows: one effect each, and never a second one."""
    tools = {
        "before": ("test -e before || { touch before; kill -9 $$; }; echo x >> before-effects", "failed"),
        "after": ("echo x >> after-effects; kill -9 $$", "succeeded"),
        "unsure": ("echo x >> unsure-effects; kill -9 $$", "unknown"),
    }
    for name, (script, word) in tools.items():
        probe = ["/bin/sh", "-c", f"""echo '{{"status":"{word}"}}'"""]
        home.tool(name, script, effect="write", approve="auto", retries=3, probe=probe)
    home.model({"calls": [{"name": name} for name in tools]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    assert [(home.path / f"{name}-effects").read_text() for name in tools] == ["x\n"] * 3
    attempts = [(e["payload"]["operationId"], e["payload"]["attempt"]) for e in home.events(session, "tool.started")]
    assert sorted(attempts) == [("op-2", 1), ("op-2", 2), ("op-3", 1), ("op-4", 1)]
    ended = [event["payload"] for event in home.events(session, "tool.finished")]
    (again,) = [each for each in ended if each.get("willRetry")]
    assert again["error"] == "ended by SIGKILL; its probe said: failed"
    assert 200 <= again["pauseMs"] <= 300
    last = {each["operationId"]: (each["status"], each["mayHaveEffects"]) for each in ended}
    assert last == {"op-2": ("succeeded", False), "op-3": ("succeeded", False), "op-4": ("failed", True)}
    keys = {e["payload"]["idempotencyKey"] for e in home.events(session, "tool.registered")}
    assert len(keys) == 3
    assert home.view(f"{session}/1")["usage"]["retries"] == 1


def test_a_probe_that_answers_after_the_end_adds_a_late_result(home: Home) -> None:
    # covers A35 A50 A52 A62 A68
    run = an_export_under_way(home, probe=PROBE)
    assert home.run("cancel", run, "--wait").code == 0
    still = home.run("reconcile", run, "--ask")
    assert (still.code, "job-7" in still.text) == (0, True)
    assert home.events(run, "operation.late_result") == []
    before, messages = home.view(run), home.messages(run)
    (home.path / "job").write_text("succeeded")
    assert home.run("reconcile", run, "--ask", "--json").docs == []
    (late,) = home.events(run, "operation.late_result")
    assert (late["payload"]["operationId"], late["payload"]["status"]) == ("op-2", "succeeded")
    assert home.events(run)[-1] == late
    after = home.view(run)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"unresolvedOperations", "updatedAt", "appliedSeq"}
    assert (after["status"], after["unresolvedOperations"]) == ("cancelled", [])
    assert home.messages(run) == messages
    assert not (home.run_dir(run) / "report.md").exists()
    # It is certain now, and nobody is asked again.
    questions = len(asked(home))
    assert home.run("reconcile", run, "--ask").code == 0
    assert len(asked(home)) == questions
    assert len(home.events(run, "operation.late_result")) == 1


def test_asking_is_about_a_whole_run(home: Home) -> None:
    run = an_export_under_way(home)
    assert home.run("reconcile", run, "op-2", "--ask").code == 2
