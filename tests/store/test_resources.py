"""Claims on resources outside: who gets one, how long it is held, and that the record decides.

# covers A69
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.commands import stops
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.records.claim import file_name
from agentrun.records.codec import Doc
from agentrun.states import EventType
from agentrun.store.redo import recording, writing
from agentrun.store.resources import Resources
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

E = EventType
EXPORT: Doc = {"operationId": "op-2", "toolCallId": "call-1", "toolName": "export"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path))


def registered(tree: Tree, resource: str = "warehouse", *, session_id: str | None = None) -> Executor:
    """A run of a new session whose write on `resource` is registered."""
    session = tree.create_session(session_id=session_id)
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    key = f"key of {session.session_id} at {session.read().created_at}"
    more = {"turnId": "turn-1", "arguments": {}, "effect": "write", "resource": resource, "idempotencyKey": key}
    executor.append(E.TOOL_REGISTERED, **EXPORT, **more)
    return executor


def claim(executor: Executor) -> str | None:
    with recording(executor.session) as writer:
        (operation,) = executor.run_dir.check(executor.lease, writer).open_operations
        return Resources(executor.session).claim(writer, executor.run_dir, operation)


def holder_of(executor: Executor) -> tuple[str, str]:
    doc = json.loads(claim_path(executor).read_bytes())
    return doc["sessionId"], doc["operationId"]


def claim_path(executor: Executor, name: str = "warehouse") -> Path:
    return Path(executor.session.directory.path).parent.parent / "resources" / name


def start(executor: Executor) -> None:
    executor.append(E.TOOL_STARTED, attempt=1, **EXPORT)


def finish(executor: Executor, status: str, **more: object) -> None:
    executor.append(E.TOOL_FINISHED, operationId="op-2", status=status, attempt=1, **more)


def reconcile(executor: Executor, status: str) -> None:
    with writing(executor.session) as writer:
        payload = {"operationId": "op-2", "status": status, "evidence": "the user's word"}
        executor.run_dir.append_as_anyone(writer, E.OPERATION_RECONCILED, payload)


def cancel(executor: Executor) -> None:
    trees.cancel(executor.session, executor.run_dir.run_id)
    executor.wind_down()


HELD: dict[str, Callable[[Executor], object]] = {
    "not started yet": lambda first: None,
    "under way": start,
    "between two attempts": lambda first: (start(first), finish(first, "failed", willRetry=True)),
    "cut off": lambda first: (start(first), finish(first, "timed_out", mayHaveEffects=True)),
    "unknown": lambda first: (start(first), reconcile(first, "unknown")),
    "its executor is dead": lambda first: (start(first), first.die()),
    "cancelled, and nobody knows": lambda first: (start(first), cancel(first)),
}
FREE: dict[str, Callable[[Executor], object]] = {
    "succeeded": lambda first: (start(first), finish(first, "succeeded", mayHaveEffects=False)),
    "failed": lambda first: (start(first), finish(first, "failed", mayHaveEffects=False)),
    "settled by a probe or the user": lambda first: (start(first), first.die(), reconcile(first, "succeeded")),
    "settled after the run's end": lambda first: (start(first), cancel(first), reconcile(first, "failed")),
    "skipped, as its run ended before": cancel,
}


@pytest.mark.parametrize("state", HELD)
def test_a_write_in_doubt_keeps_what_it_has_claimed(tree: Tree, state: str) -> None:
    first, second = registered(tree), registered(tree)
    assert claim(first) is None
    HELD[state](first)
    refusal = claim(second)
    assert refusal is not None
    assert f"the resource 'warehouse' is claimed by op-2 (export) of {first.session.session_id}/run-1, " in refusal
    assert holder_of(first) == (first.session.session_id, "op-2")


@pytest.mark.parametrize("state", FREE)
def test_a_write_that_is_settled_lets_go_whatever_became_of_the_file(tree: Tree, state: str) -> None:
    first, second = registered(tree), registered(tree)
    assert claim(first) is None
    left = claim_path(first).read_bytes()
    FREE[state](first)
    # As a crash before the claim was taken back would leave it.
    claim_path(first).write_bytes(left)
    assert claim(second) is None
    assert holder_of(second) == (second.session.session_id, "op-2")


def test_the_end_of_a_run_takes_back_what_is_settled_and_nothing_else(tree: Tree) -> None:
    # covers A66
    first, other = registered(tree), registered(tree, "ledger")
    assert claim(first) is claim(other) is None
    start(first)
    finish(first, "succeeded", mayHaveEffects=False)
    first.complete()
    assert not claim_path(first).exists()
    assert claim_path(other, "ledger").exists()


def test_the_end_of_a_run_keeps_the_claim_of_what_is_unresolved(tree: Tree) -> None:
    # covers A51 A52
    first = registered(tree)
    claim(first)
    start(first)
    cancel(first)
    assert holder_of(first) == (first.session.session_id, "op-2")


def test_an_action_claims_again_in_each_attempt(tree: Tree) -> None:
    first = registered(tree)
    assert claim(first) is None
    start(first)
    finish(first, "failed", willRetry=True)
    assert claim(first) is None


def test_another_resource_is_another_matter(tree: Tree) -> None:
    assert claim(registered(tree)) is None
    assert claim(registered(tree, "ledger")) is None


def test_a_session_that_is_gone_holds_nothing_nor_does_its_name(tree: Tree) -> None:
    # covers A70
    first = registered(tree, session_id="nightly")
    assert claim(first) is None
    start(first)
    left = claim_path(first).read_bytes()
    first.die()
    os.rename(first.session.directory.path, Path(tree.root) / "removed")
    assert claim(registered(tree)) is None
    again = registered(tree, session_id="nightly")
    claim_path(again).write_bytes(left)
    start(again)
    # It has the same names, and is another action.
    assert claim(registered(tree)) is None


@pytest.mark.parametrize("name", ["../../ledger", "a/b", "", ".hidden", "x" * 300, "Büro", "a\nb", "-rf"])
def test_any_name_of_a_resource_is_one_file_in_its_place(tree: Tree, name: str) -> None:
    """# case C21"""
    first = registered(tree, name or " ")
    before = {path for path in Path(tree.root).rglob("*") if path.name != "resources"}
    assert claim(first) is None
    (made,) = {path for path in Path(tree.root).rglob("*") if path.name != "resources"} - before
    assert made == claim_path(first, file_name(name or " "))
    assert made.stat().st_mode & 0o777 == 0o600
    assert made.parent.stat().st_mode & 0o777 == 0o700
    refusal = claim(registered(tree, name or " "))
    assert refusal is not None
    assert repr(name or " ") in refusal


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0", b"{}", b'{"resource":"warehouse","sessionId":"../x","runId":"run-1"}']
)
def test_a_damaged_claim_frees_nothing(tree: Tree, content: bytes) -> None:
    first = registered(tree)
    claim(first)
    claim_path(first).write_bytes(content)
    refusal = claim(registered(tree))
    assert refusal is not None
    assert f"{claim_path(first)} is damaged" in refusal


def test_a_holder_whose_record_is_damaged_holds(tree: Tree) -> None:
    first = registered(tree)
    claim(first)
    first.die()
    for name in ("run.json", "operations.jsonl"):
        trees.run_path(first.session, "run-1", name).write_bytes(b"\0" * 64 + b"\n")
    Path(first.session.directory.path, "messages.jsonl").write_bytes(b"")
    refusal = claim(registered(tree))
    assert refusal is not None
    assert "cannot be told" in refusal


def test_a_holder_whose_events_are_lost_holds_until_it_is_ended(tree: Tree) -> None:
    first = registered(tree)
    claim(first)
    start(first)
    first.die()
    for name in ("run.json", "operations.jsonl"):
        trees.run_path(first.session, "run-1", name).unlink()
    second = registered(tree)
    refusal = claim(second)
    assert refusal is not None
    assert "cannot be told: events of " in refusal
    place = Place(tree, None, dict(os.environ))
    assert stops.cancel(place, Target(tree.session(first.session.session_id), "run-1"), "enough").run.is_over
    assert claim(second) is None


@pytest.mark.parametrize("planted", ["link", "fifo", "directory"])
def test_what_is_planted_is_not_followed_and_keeps_no_run_from_its_end(
    tree: Tree, tmp_path: Path, planted: str
) -> None:
    """# case C21"""
    first = registered(tree)
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    claim_path(first).parent.mkdir(mode=0o700)
    if planted == "link":
        claim_path(first).symlink_to(target)
    elif planted == "fifo":
        os.mkfifo(claim_path(first))
    else:
        claim_path(first).mkdir()
    refusal = claim(first)
    assert refusal is not None
    assert "cannot be told" in refusal
    cancel(first)
    assert first.run_dir.load().is_over
    assert target.read_bytes() == b"mine"


CLAIMANT = """
import sys, time
from pathlib import Path
from agentrun.store.tree import Tree
sys.path.insert(0, sys.argv[1])
from test_resources import claim, finish, registered, start
executor = registered(Tree(sys.argv[2]))
go, rounds = Path(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
for number in range(rounds):
    while not go.with_name(f"go-{number}").exists():
        time.sleep(0.001)
    print("refused" if claim(executor) else "got", flush=True)
"""


@pytest.mark.slow
def test_of_many_processes_that_claim_at_once_one_gets_it(tree: Tree, tmp_path: Path) -> None:
    """Each round frees the last claim by its record alone, so that all of them see a claim that is free at once."""
    rounds, count = 10, 6
    argv = [sys.executable, "-c", CLAIMANT, str(Path(__file__).parent), tree.root, str(tmp_path / "go"), str(rounds)]
    claimants = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        says = [each.stdout for each in claimants]
        for each in says:
            assert each is not None
            assert each.readline() == "ready\n"
        first = registered(tree)
        assert claim(first) is None
        stale = claim_path(first).read_bytes()
        finish(_started(first), "succeeded", mayHaveEffects=False)
        for number in range(rounds):
            claim_path(first).write_bytes(stale)
            (tmp_path / f"go-{number}").touch()
            said = [each.readline() for each in says if each is not None]
            assert sorted(said) == ["got\n"] + ["refused\n"] * (count - 1)
    finally:
        for claimant in claimants:
            with claimant:
                claimant.kill()


def _started(executor: Executor) -> Executor:
    start(executor)
    return executor


@pytest.mark.slow
def test_a_lock_that_is_never_let_go_stops_nobody_for_ever(tree: Tree) -> None:
    first = registered(tree)
    assert claim(first) is None
    start(first)
    directory = claim_path(first).parent
    argv = ["flock", str(directory), "sh", "-c", "echo locked; exec sleep 617"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as frozen:
        assert frozen.stdout is not None
        frozen.stdout.readline()
        try:
            refusal = claim(registered(tree, "ledger"))
            assert refusal is not None
            assert "stays locked" in refusal
            cancel(first)
            assert first.run_dir.load().is_over
        finally:
            os.killpg(frozen.pid, signal.SIGKILL)


def test_the_words_name_the_remote_job(tree: Tree) -> None:
    first = registered(tree)
    claim(first)
    start(first)
    first.append(E.TOOL_REMOTE_ID, operationId="op-2", remoteId="job-7")
    cancel(first)
    name = first.session.session_id
    assert claim(registered(tree)) == (
        f"the resource 'warehouse' is claimed by op-2 (export, remote id job-7) of {name}/run-1, "
        "of which nobody knows yet what it did"
    )
