"""Tools that are commands, with real processes: what they get, what comes back, and how they end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from standstill import run_once_ready

from agentrun.adapters.process import end_marked_now
from agentrun.adapters.process.tree import KILL_SECONDS
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools import command, telling
from agentrun.adapters.tools.command import CommandTool
from agentrun.agent.protocols import Invocation, ToolOutcome
from agentrun.config import ToolConfig
from agentrun.states import OperationStatus as Status


class Heard:
    """What a tool said besides its outcome."""

    def __init__(self) -> None:
        self.remote_ids: list[str] = []
        self.stopped: list[ToolOutcome] = []

    async def on_remote_id(self, remote_id: str) -> None:
        self.remote_ids.append(remote_id)


def surroundings(directory: Path, **more: Any) -> Surroundings:
    given: dict[str, Any] = {
        "root": str(directory / "root"),
        "config_path": str(directory / "agentrun.toml"),
        "account": "ann",
        "session_id": "session-1",
        "run_id": "run-7",
        "scratch": str(directory),
        "working_directory": "/",
        "environment": {
            "PATH": os.environ["PATH"],
            "OPENAI_API_KEY": "secret",
            "AGENTRUN_RUN": "run-outside",
        },
    }
    return Surroundings(**(given | more))


def tool(directory: Path, *argv: str, given: Surroundings | None = None, **config: Any) -> CommandTool:
    return CommandTool(
        ToolConfig("t", argv, **config),
        given or surroundings(directory),
        directory=str(directory),
        secrets={"OPENAI_API_KEY"},
    )


def shell(directory: Path, script: str, **config: Any) -> CommandTool:
    return tool(directory, "sh", "-c", script, **config)


def invocation(**arguments: Any) -> Invocation:
    return Invocation("op-2", arguments, "key-1", 1)


def call(driven: CommandTool, heard: Heard, **arguments: Any) -> ToolOutcome:
    async def main() -> ToolOutcome:
        return await driven.call(invocation(**arguments), heard.on_remote_id, heard.stopped.append)

    return anyio.run(main)


def call_timed(driven: CommandTool, ready: Callable[[], bool]) -> ToolOutcome:
    """As `call`; its time is not up before it is ready."""
    heard = Heard()
    return run_once_ready(ready, lambda: driven.call(invocation(), heard.on_remote_id, heard.stopped.append))


def printed(outcome: ToolOutcome) -> bytes:
    assert not isinstance(outcome.output, bytes)
    with outcome.output as file:
        return file.read()


def test_arguments_go_in_as_json_and_the_output_is_the_result(tmp_path: Path) -> None:
    outcome = call(shell(tmp_path, "cat"), Heard(), sql="SELECT 'ä\n\ud800'", limit=3)
    assert json.loads(printed(outcome)) == {"sql": "SELECT 'ä\n\ud800'", "limit": 3}
    assert outcome == ToolOutcome(Status.SUCCEEDED, outcome.output)


def test_the_environment_names_the_run_and_holds_no_key(tmp_path: Path) -> None:
    environment = json.loads(printed(call(tool(tmp_path, "python3", "-c", ENVIRONMENT), Heard())))
    ours = {name: value for name, value in environment.items() if name.startswith("AGENTRUN_")}
    assert ours == {
        "AGENTRUN_ROOT": str(tmp_path / "root"),
        "AGENTRUN_CONFIG": str(tmp_path / "agentrun.toml"),
        "AGENTRUN_ACCOUNT": "ann",
        "AGENTRUN_SESSION": "session-1",
        "AGENTRUN_RUN": "run-7",
        "AGENTRUN_OPERATION": "op-2",
        "AGENTRUN_IDEMPOTENCY_KEY": "key-1",
        "AGENTRUN_SCRATCH": str(tmp_path),
    }
    assert "PATH" in environment
    assert "OPENAI_API_KEY" not in environment


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_without_a_file_no_configuration_is_named(tmp_path: Path) -> None:
    outside = {"PATH": os.environ["PATH"], "AGENTRUN_CONFIG": "/of/another/run.toml"}
    given = surroundings(tmp_path, config_path=None, environment=outside)
    environment = json.loads(printed(call(tool(tmp_path, "python3", "-c", ENVIRONMENT, given=given), Heard())))
    assert "AGENTRUN_CONFIG" not in environment


def test_it_runs_in_the_directory_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "here.sh").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "here.sh").chmod(0o700)
    assert printed(call(tool(tmp_path, "./here.sh"), Heard())).decode().strip() == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("script", "status", "error", "retryable"),
    [
        ("exit 0", Status.SUCCEEDED, None, False),
        ("echo loading >&2; exit 75", Status.FAILED, "exit 75: loading", True),
        ("echo no such table >&2; exit 1", Status.FAILED, "exit 1: no such table", False),
        ("exit 2", Status.FAILED, "exit 2", False),
        ("kill -KILL $$", Status.FAILED, "ended by SIGKILL", False),
        # As where memory runs out: it is what the script runs that is killed.
        ("sh -c 'kill -KILL $$' 2>&-; exit $?", Status.FAILED, "exit 137 (SIGKILL)", False),
        ("exit 200", Status.FAILED, "exit 200", False),
    ],
)
@pytest.mark.parametrize("effect", ["read", "write"])
def test_how_it_ended_is_what_is_reported(
    tmp_path: Path, script: str, status: Status, error: str | None, retryable: bool, effect: str
) -> None:
    outcome = call(shell(tmp_path, f"echo out; {script}", effect=effect), Heard())
    assert printed(outcome) == b"out\n"
    assert (outcome.status, outcome.error, outcome.retryable) == (status, error, retryable)
    # A write that was killed from outside may have come any far; one that says that it failed has failed.
    assert outcome.may_have_effects == (effect == "write" and "SIGKILL" in str(error))


@pytest.mark.slow
@pytest.mark.parametrize(("effect", "effects"), [("read", False), ("write", True)])
def test_a_time_out_ends_it_and_only_a_read_may_be_repeated(tmp_path: Path, effect: str, effects: bool) -> None:
    script = "echo half; echo why >&2; touch said; exec sleep 60"
    driven = shell(tmp_path, script, timeout=0.3, grace=0.05, effect=effect)
    outcome = call_timed(driven, (tmp_path / "said").exists)
    assert printed(outcome) == b"half\n"
    assert (outcome.status, outcome.error) == (Status.TIMED_OUT, "it did not end within 0.3 s: why")
    assert (outcome.may_have_effects, outcome.retryable) == (effects, not effects)


def test_a_command_that_is_not_there_has_not_happened(tmp_path: Path) -> None:
    outcome = call(tool(tmp_path, "./nosuch.sh", effect="write"), Heard())
    assert (outcome.status, outcome.may_have_effects, outcome.retryable) == (Status.FAILED, False, False)
    assert "nosuch.sh" in (outcome.error or "")


@pytest.mark.parametrize(
    ("lines", "ids", "ignored"),
    [
        (['{"remoteId": "job-1"}'], ["job-1"], 0),
        (['{"remoteId": "job-1"}', '{"remoteId": "job-1"}', '{"remoteId": "job-2"}'], ["job-1", "job-2"], 0),
        (['{"remoteId": 17}', '{"remoteId": 1.5}'], ["17", "1.5"], 0),
        (["nonsense", "[]", "4", '{"id": "x"}', '{"remoteId": null}', '{"remoteId": ""}'], [], 6),
        (['{"remoteId": true}', '{"remoteId": ["x"]}', "\\377", "", '{"remoteId": "job-1"}'], ["job-1"], 3),
    ],
)
def test_remote_ids_are_passed_on_and_nonsense_is_only_noted(
    tmp_path: Path, lines: list[str], ids: list[str], ignored: int
) -> None:
    heard = Heard()
    script = "printf '" + "\\n".join(lines) + "\\n' >&3"
    outcome = call(shell(tmp_path, script), heard)
    printed(outcome)
    assert heard.remote_ids == ids
    assert outcome.status is Status.SUCCEEDED
    noted = f'ignored on descriptor 3, since they are no {{"remoteId": ...}}: {ignored} lines'
    assert outcome.note == (noted if ignored else None)


def test_of_remote_ids_without_end_a_bounded_number_is_stored(tmp_path: Path) -> None:
    """Each is a line of the record, synced while the tool goes on. # covers promise 16"""
    heard = Heard()
    script = """i=0; while [ $i -lt 300 ]; do i=$((i + 1)); echo "{\\"remoteId\\": \\"job-$i\\"}"; done >&3"""
    outcome = call(shell(tmp_path, script), heard)
    printed(outcome)
    assert heard.remote_ids == [f"job-{number}" for number in range(1, 101)]
    assert outcome.status is Status.SUCCEEDED
    assert outcome.note == "after 100 remote ids no more were stored: 200 lines"


def test_a_remote_id_is_passed_on_while_the_command_runs(tmp_path: Path) -> None:
    """The command goes on only after its id was taken, or it would wait for ever."""
    heard, taken = Heard(), tmp_path / "taken"

    async def take(remote_id: str) -> None:
        heard.remote_ids.append(remote_id)
        taken.touch()

    async def main() -> ToolOutcome:
        script = f"""echo '{{"remoteId": "job-1"}}' >&3; while [ ! -e {taken} ]; do sleep 0.01; done"""
        return await shell(tmp_path, script).call(invocation(), take, heard.stopped.append)

    printed(anyio.run(main))
    assert heard.remote_ids == ["job-1"]


def stopped(driven: CommandTool, is_ready: Callable[[], bool] | None) -> tuple[Heard, bool]:
    """Stops the call once it is ready (None: before it began); says what was heard, and if it went on."""
    heard, went_on = Heard(), False

    async def main() -> None:
        nonlocal went_on
        with anyio.CancelScope() as scope:
            if is_ready is None:
                scope.cancel()
            async with anyio.create_task_group() as group:
                group.start_soon(driven.call, invocation(), heard.on_remote_id, heard.stopped.append)
                while is_ready is not None and not is_ready():  # noqa: ASYNC110 - another process says so
                    await anyio.sleep(0.005)
                scope.cancel()
        went_on = scope.cancelled_caught

    anyio.run(main)
    return heard, went_on


@pytest.mark.parametrize(("effect", "effects"), [("read", False), ("write", True)])
def test_a_stop_tells_what_is_known_and_goes_on(tmp_path: Path, effect: str, effects: bool) -> None:
    ready = tmp_path / "ready"
    driven = shell(tmp_path, f"echo half; touch {ready}; exec sleep 60", effect=effect, grace=0.05)
    heard, went_on = stopped(driven, ready.exists)
    assert went_on
    (outcome,) = heard.stopped
    assert printed(outcome) == b"half\n"
    assert (outcome.status, outcome.may_have_effects) == (Status.CANCELLED, effects)


@pytest.mark.slow
def test_a_stop_names_what_it_could_not_end_in_the_time_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of another user, as far as signals go: the kernel refuses them."""
    # covers A51
    ready = tmp_path / "ready"
    # Time enough for the tool itself, which its group's signal reaches, to be gone on a busy machine too.
    hidden = f"setsid sh -c 'touch {ready}; exec sleep 60' >&- 2>&- 3>&-"
    driven = shell(tmp_path, f"{hidden} & wait", grace=0.05, kill_timeout=1.0)
    began: list[float] = []

    def refuse(*_: object) -> None:
        began.append(time.monotonic())
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(signal, "pidfd_send_signal", refuse)
        heard, _ = stopped(driven, ready.exists)
    (outcome,) = heard.stopped
    assert "these processes could not be ended: " in (outcome.note or "")
    assert " (sleep 60)" in (outcome.note or "")
    assert began[-1] - began[0] < KILL_SECONDS, "it kept to the usual time"
    assert end_marked_now(surroundings(tmp_path).marker(invocation().operation_id), grace=0) == []


def test_a_stop_before_the_start_has_no_effects(tmp_path: Path) -> None:
    heard, went_on = stopped(shell(tmp_path, f"touch {tmp_path}/started"), None)
    assert went_on
    assert heard.stopped == [ToolOutcome(Status.CANCELLED)]
    assert not (tmp_path / "started").exists()


def test_an_id_that_cannot_be_stored_ends_the_command_and_is_told(tmp_path: Path) -> None:
    heard = Heard()

    async def refuse(remote_id: str) -> None:
        raise OSError("the disk is full")

    async def main() -> None:
        script = """echo '{"remoteId": "job-1"}' >&3; exec sleep 60"""
        await shell(tmp_path, script, grace=0.05).call(invocation(), refuse, heard.stopped.append)

    with pytest.raises(OSError, match="the disk is full"):
        anyio.run(main)
    (outcome,) = heard.stopped
    assert outcome.may_have_effects
    printed(outcome)


def test_only_the_end_of_stderr_is_the_error(tmp_path: Path) -> None:
    outcome = call(shell(tmp_path, "seq 1 5000 >&2; exit 1"), Heard())
    printed(outcome)
    assert outcome.error is not None
    assert outcome.error.startswith("exit 1: ... ")
    assert outcome.error.endswith("\n5000")
    assert len(outcome.error) < telling.STDERR_SHOWN + 100


def test_output_that_is_too_long_is_cut_and_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT", 10)
    outcome = call(shell(tmp_path, "echo 12345678901234567890"), Heard())
    assert printed(outcome) == b"1234567890"
    assert outcome.status is Status.SUCCEEDED
    assert outcome.note == "only the first 10 of 21 bytes of output were kept"


@pytest.mark.slow
def test_a_child_that_holds_the_output_is_noted_and_not_waited_for(tmp_path: Path) -> None:
    script = "echo done; setsid sleep 60 & exit 3"
    outcome = call(shell(tmp_path, script), Heard())
    assert end_marked_now(surroundings(tmp_path).marker(invocation().operation_id), grace=5) == []
    assert printed(outcome) == b"done\n"
    assert outcome.error == "exit 3"
    assert outcome.note == "another process still held the output open when the command had ended"


def test_what_a_model_is_told_of_it(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["sql"]}
    spec = shell(
        tmp_path,
        "true",
        description="asks",
        parameters=schema,
        effect="read",
        approve="auto",
        timeout=30.0,
        retries=2,
    ).spec
    assert (spec.name, spec.description, spec.parameters) == ("t", "asks", schema)
    assert (spec.effect, spec.approve, spec.timeout, spec.retries) == ("read", "auto", 30.0, 2)


# A write that was cut off: its probe.

DONE = """echo '{"status":"succeeded","result":"12 rows"}'"""
NOT_DONE = """echo '{"status":"failed"}'"""


def cut_off(directory: Path, probe: str, *, script: str = "echo begun; kill -9 $$", **config: Any) -> CommandTool:
    return shell(directory, script, probe=("sh", "-c", probe), **({"grace": 0.2} | config))


@pytest.mark.parametrize(
    ("script", "timeout", "ending"),
    [
        ("echo begun; kill -9 $$", None, "ended by SIGKILL"),
        pytest.param(
            "echo begun; touch begun; exec sleep 600", 2.0, "it did not end within 2 s", marks=pytest.mark.slow
        ),
    ],
)
def test_a_write_whose_probe_says_that_it_did_not_happen_may_be_tried_again(
    tmp_path: Path, script: str, timeout: float | None, ending: str
) -> None:
    # covers A37 A60
    # The time-out is the probe's as well.
    driven = cut_off(tmp_path, NOT_DONE, script=script, timeout=timeout)
    outcome = call_timed(driven, (tmp_path / "begun").exists) if timeout else call(driven, Heard())
    assert (outcome.status, outcome.retryable, outcome.may_have_effects) == (Status.FAILED, True, False)
    assert outcome.error == f"{ending}; its probe said: failed"
    assert printed(outcome) == b"begun\n"


def test_a_write_whose_probe_says_that_it_happened_has_succeeded(tmp_path: Path) -> None:
    # covers A60
    outcome = call(cut_off(tmp_path, DONE), Heard())
    assert outcome == ToolOutcome(Status.SUCCEEDED, b"12 rows", note="ended by SIGKILL; its probe said: succeeded")


@pytest.mark.parametrize("probe", ["""echo '{"status":"running"}'""", """echo '{"status":"unknown"}'""", "exit 1", ""])
def test_a_write_of_which_nobody_knows_is_not_tried_again(tmp_path: Path, probe: str) -> None:
    # covers A35 A60
    outcome = call(cut_off(tmp_path, probe), Heard())
    assert (outcome.status, outcome.retryable, outcome.may_have_effects) == (Status.FAILED, False, True)
    assert outcome.error is not None
    assert outcome.error.startswith("ended by SIGKILL; its probe ")


@pytest.mark.parametrize(
    ("script", "effect"), [("exit 0", "write"), ("exit 1", "write"), ("exit 75", "write"), ("kill -9 $$", "read")]
)
def test_a_probe_is_asked_only_about_a_write_that_was_cut_off(tmp_path: Path, script: str, effect: str) -> None:
    call(cut_off(tmp_path, "touch asked", script=script, effect=effect), Heard())
    assert not (tmp_path / "asked").exists()


def test_a_probe_gets_the_newest_remote_id(tmp_path: Path) -> None:
    # covers A34
    script = """echo '{"remoteId":"a"}' >&3; echo '{"remoteId":"b"}' >&3; kill -9 $$"""
    call(cut_off(tmp_path, "cat > asked", script=script), Heard())
    assert json.loads((tmp_path / "asked").read_text()) == {"remoteId": "b", "idempotencyKey": "key-1"}


@pytest.mark.slow
def test_a_probe_is_asked_after_the_last_process_of_the_tool_has_ended(tmp_path: Path) -> None:
    # covers B31
    """What it left running could still do what the probe denies."""
    script = "(trap '' TERM; sleep 611) & echo $! > left; kill -9 $$"
    # One that has ended may still wait for init to collect it.
    probe = f"""grep -qs 'State:.[RSDT]' "/proc/$(cat left)/status" && touch alive; {NOT_DONE}"""
    assert call(cut_off(tmp_path, probe, script=script), Heard()).retryable
    assert not (tmp_path / "alive").exists()


@pytest.mark.slow
def test_a_stop_while_the_probe_is_asked_leaves_what_was_known(tmp_path: Path) -> None:
    heard = Heard()
    driven = cut_off(tmp_path, "touch asked; while :; do sleep 0.05; done")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.call, invocation(), heard.on_remote_id, heard.stopped.append)
            while not (tmp_path / "asked").exists():  # noqa: ASYNC110 - made by a process
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    anyio.run(main)
    (stopped,) = heard.stopped
    assert (stopped.status, stopped.may_have_effects, stopped.error) == (Status.FAILED, True, "ended by SIGKILL")
