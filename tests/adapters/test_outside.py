"""Asking the world outside about an action, with real commands: what they get, what they say, and how they fail.

# covers A35 A45 A60 B38
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from standstill import run_once_ready

from agentrun.adapters.registry import build_outside
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.outside import LONGEST_ANSWER, CommandOutside
from agentrun.agent.outside import Outside, Unreachable
from agentrun.config import Config, ToolConfig, load_config
from agentrun.records.findings import CancelAnswer, Probed
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus

EXPORT = Operation(
    "op-2", "tool", "export", effect="write", idempotency_key="key-1", remote_id="job-7", status=OperationStatus.RUNNING
)


def surroundings(directory: Path) -> Surroundings:
    return Surroundings(
        root=str(directory / "root"),
        config_path=str(directory / "agentrun.toml"),
        account="ann",
        session_id="session-1",
        run_id="run-7",
        scratch=str(directory),
        working_directory="/",
        environment={"PATH": os.environ["PATH"], "OPENAI_API_KEY": "secret"},
    )


def asking(directory: Path, script: str, *, verb: str = "probe", **config: Any) -> CommandOutside:
    config = {"grace": 0.2} | config | {verb: ("sh", "-c", script)}
    tools = {"export": ToolConfig("export", ("true",), **config)}
    return CommandOutside(tools, surroundings(directory), directory=str(directory), secrets={"OPENAI_API_KEY"})


def probed(outside: Outside, operation: Operation = EXPORT) -> Probed:
    return anyio.run(outside.probe, operation)


def cancelled(outside: Outside, operation: Operation = EXPORT) -> CancelAnswer:
    return anyio.run(outside.cancel, operation)


@pytest.mark.parametrize("word", ["succeeded", "failed", "running", "unknown"])
def test_a_probe_answers_in_one_of_its_words(tmp_path: Path, word: str) -> None:
    found = probed(asking(tmp_path, f"""echo '{{"status":"{word}"}}'"""))
    assert found == Probed(word, None, f"its probe said: {word}")  # type: ignore[arg-type]
    assert found.is_certain == (word in ("succeeded", "failed"))


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ('"rows: 12"', b"rows: 12"),
        ('{"rows": 12, "name": "\\u00e4"}', '{"rows":12,"name":"ä"}'.encode()),
        ("[1, 2]", b"[1,2]"),
        ("0", b"0"),
        ("null", None),
    ],
)
def test_a_result_is_what_the_tool_would_have_printed(tmp_path: Path, said: str, result: bytes | None) -> None:
    (tmp_path / "answer").write_text(f'{{"status": "succeeded", "result": {said}}}')
    assert probed(asking(tmp_path, "cat answer")).result == result


def test_a_result_that_can_be_read_and_not_be_stored_raises_nothing(tmp_path: Path) -> None:
    """What is nested a little less than reading it allows may be too deep for writing it."""

    def answered(depth: int) -> Probed:
        (tmp_path / "answer").write_text(f'{{"status": "succeeded", "result": {"[" * depth}{"]" * depth}}}')
        return probed(asking(tmp_path, "cat answer"))

    read, not_read = 1, LONGEST_ANSWER // 4
    while not_read - read > 1:
        middle = (read + not_read) // 2
        if "no JSON object" in answered(middle).evidence:
            not_read = middle
        else:
            read = middle
    for depth in (read - 1, read):
        found = answered(depth)
        assert found.status == "succeeded" or "succeeded, with a result that no record can hold" in found.evidence


def test_it_gets_the_remote_id_and_the_key_where_the_tool_runs(tmp_path: Path) -> None:
    """In the tool's directory, with the tool's environment, and without the secrets."""
    script = """cat > asked; env > environment; pwd > directory; echo '{"status":"running"}'"""
    assert probed(asking(tmp_path, script)).status == "running"
    assert json.loads((tmp_path / "asked").read_text()) == {"remoteId": "job-7", "idempotencyKey": "key-1"}
    environment = (tmp_path / "environment").read_text().splitlines()
    assert {"AGENTRUN_RUN=run-7", "AGENTRUN_OPERATION=op-2", "AGENTRUN_IDEMPOTENCY_KEY=key-1"} <= set(environment)
    assert "secret" not in (tmp_path / "environment").read_text()
    assert (tmp_path / "directory").read_text().strip() == str(tmp_path.resolve())


def test_an_action_without_a_remote_id_is_asked_for_by_its_key(tmp_path: Path) -> None:
    assert probed(asking(tmp_path, "cat > asked"), EXPORT._replace(remote_id=None)).status == "unknown"
    assert json.loads((tmp_path / "asked").read_text()) == {"remoteId": None, "idempotencyKey": "key-1"}


@pytest.mark.parametrize(
    ("script", "evidence"),
    [
        ("exit 3", "its probe failed (exit 3)"),
        ("""echo '{"status":"succeeded"}'; exit 1""", "its probe failed (exit 1)"),
        ("echo gone >&2; kill -9 $$", "its probe failed (ended by SIGKILL): gone"),
        ("echo succeeded", "its probe said what is no JSON object: 'succeeded'"),
        ("echo '[1]'", "its probe said what is no JSON object: '[1]'"),
        ("""echo '{"status":"done"}'""", "where status has to be one of: succeeded, failed, running, unknown"),
        ("""echo '{"status":"cancelled"}'""", "where status has to be one of: succeeded, failed, running, unknown"),
        ("""echo '{"status":["succeeded"]}'""", "where status has to be one of: succeeded, failed, running, unknown"),
        ("""echo '{"result":1}'""", "where status has to be one of: succeeded, failed, running, unknown"),
        ("", "its probe ended well and said nothing"),
        (f"head -c {LONGEST_ANSWER + 1} /dev/zero", f"its probe said more than {LONGEST_ANSWER} bytes"),
        (r"printf '{\"status\":\"succeeded\",\"result\":\"\377\"}'", "its probe said what is no JSON object"),
    ],
)
def test_what_is_no_answer_is_unknown_and_says_why(tmp_path: Path, script: str, evidence: str) -> None:
    """A broken probe never counts as "it did not happen", and raises nothing."""
    found = probed(asking(tmp_path, script))
    assert (found.status, found.result) == ("unknown", None)
    assert evidence in found.evidence


@pytest.mark.parametrize("verb", ["probe", "cancel"])
def test_a_command_that_cannot_be_started_is_unknown(tmp_path: Path, verb: str) -> None:
    config: dict[str, Any] = {verb: ("./missing.sh",)}
    tools = {"export": ToolConfig("export", ("true",), **config)}
    outside = CommandOutside(tools, surroundings(tmp_path), directory=str(tmp_path), secrets=())
    answer = probed(outside) if verb == "probe" else cancelled(outside)
    assert answer.status == "unknown"
    assert f"its {verb}: cannot start './missing.sh'" in answer.evidence


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["probe", "cancel"])
def test_one_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path, verb: str) -> None:
    script = "trap '' TERM; setsid sleep 611 & echo $! > left; touch ready; while :; do sleep 0.1; done"
    outside = asking(tmp_path, script, verb=verb, timeout=0.3)
    ask = outside.probe if verb == "probe" else outside.cancel
    answer: Probed | CancelAnswer = run_once_ready((tmp_path / "ready").exists, lambda: ask(EXPORT))
    assert answer.status == "unknown"
    assert f"its {verb} did not answer within 0.3 s" in answer.evidence
    assert not _is_alive(int((tmp_path / "left").read_text()))


@pytest.mark.slow
def test_one_that_answers_and_leaves_something_running_is_ended_too(tmp_path: Path) -> None:
    script = """setsid sleep 612 >/dev/null 2>&1 & echo $! > left; echo '{"status":"succeeded"}'"""
    assert probed(asking(tmp_path, script)).status == "succeeded"
    assert not _is_alive(int((tmp_path / "left").read_text()))


@pytest.mark.slow
def test_asking_leaves_the_tool_alone(tmp_path: Path) -> None:
    """What the tool itself left running carries the same operation, and is not the probe's to end."""
    left = anyio.run(_probe_beside_a_service, tmp_path)
    assert left is None


async def _probe_beside_a_service(directory: Path) -> int | None:
    environment = surroundings(directory).environment_for("op-2", "key-1", ())
    async with await anyio.open_process(["sleep", "613"], env=environment) as service:
        try:
            assert (await asking(directory, """echo '{"status":"running"}'""").probe(EXPORT)).status == "running"
            return service.returncode
        finally:
            service.kill()


def test_a_cancel_that_ends_well_and_says_nothing_has_cancelled(tmp_path: Path) -> None:
    outside = asking(tmp_path, "cat > asked", verb="cancel")
    answer = cancelled(outside)
    assert answer == CancelAnswer("cancelled", evidence="its cancel ended well and said nothing", is_silent=True)
    assert not answer.is_certain
    assert json.loads((tmp_path / "asked").read_text()) == {"remoteId": "job-7", "idempotencyKey": "key-1"}


@pytest.mark.parametrize("word", ["cancelled", "succeeded", "failed", "running", "unknown"])
def test_a_cancel_may_say_what_it_found(tmp_path: Path, word: str) -> None:
    answer = cancelled(asking(tmp_path, f"""echo '{{"status":"{word}","result":"r"}}'""", verb="cancel"))
    assert answer == CancelAnswer(word, b"r", f"its cancel said: {word}")  # type: ignore[arg-type]
    assert answer.is_certain == (word in ("cancelled", "succeeded", "failed"))


@pytest.mark.parametrize(("script", "said"), [("exit 1", "failed (exit 1)"), ("echo stopped", "no JSON object")])
def test_a_cancel_that_fails_has_stopped_nothing(tmp_path: Path, script: str, said: str) -> None:
    answer = cancelled(asking(tmp_path, script, verb="cancel"))
    assert (answer.status, answer.is_asked) == ("unknown", False)
    assert said in answer.evidence


def test_a_tool_without_the_commands_or_without_a_configuration_says_so(tmp_path: Path) -> None:
    outside = CommandOutside(
        {"export": ToolConfig("export", ("true",))}, surroundings(tmp_path), directory=str(tmp_path), secrets=()
    )
    assert probed(outside) == Probed("unknown", None, "export has no probe command")
    assert cancelled(outside) == CancelAnswer("unknown", None, "export has no cancel command", is_asked=False)
    gone = EXPORT._replace(name="import")
    assert probed(outside, gone).evidence == "import is not configured any more, so nobody can be asked"
    assert not outside.can_probe(EXPORT)
    assert not outside.can_cancel(EXPORT)
    assert not outside.can_probe(gone)


def test_nobody_is_reached_without_a_configuration() -> None:
    nobody = Unreachable("the file is gone")
    assert not nobody.can_probe(EXPORT)
    assert not nobody.can_cancel(EXPORT)
    assert probed(nobody) == Probed("unknown", None, "the file is gone")
    assert cancelled(nobody) == CancelAnswer("unknown", None, "the file is gone", is_asked=False)


def test_it_is_built_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "agentrun.toml"
    answer = """printf '{\\"status\\":\\"%s\\"}' \\"${OPENAI_API_KEY-failed}\\" """
    path.write_text(f"""
[agents.a]
model = "openai:x"
api_key_env = "OPENAI_API_KEY"
[tools.export]
argv = ["true"]
probe = ["sh", "-c", "{answer}"]
""")
    config: Config = load_config(str(path))
    outside = build_outside(config, surroundings(tmp_path))
    assert outside.can_probe(EXPORT)
    assert not outside.can_cancel(EXPORT)
    assert probed(outside).status == "failed"


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # gone, or going just now
        return False
    return state not in "ZX"
