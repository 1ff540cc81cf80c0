"""Whether what is left of a run would be found from here: /proc shows the processes of one container, or all of them.

A tool that outlived its executor is found by its environment, where it can be seen. That nothing was found says nothing
of a container that is not to be seen from here: what was left there has to be looked for elsewhere, or be known gone.
"""

from __future__ import annotations

import os

from agentrun import clock
from agentrun.errors import ConfigError
from agentrun.records.codec import Doc
from agentrun.records.run import Run
from agentrun.states import EventType
from agentrun.store.identity import has_ended, pid_namespace, sees_namespace, user_namespace
from agentrun.store.reading import RunReader

# The number of the kernel's first PID namespace, in which all processes are (PROC_PID_INIT_INO of Linux).
_FIRST_NAMESPACE = 0xEFFFFFFC
# The first process of a namespace, with which the kernel kills all others in it (pid_namespaces(7)).
_FIRST_PROCESS = 1
# Appended by who executes a run, and not by who settles what a lost executor left.
_OF_AN_EXECUTOR = frozenset({EventType.INPUT_DELIVERED, EventType.MODEL_REQUEST_STARTED, EventType.TOOL_STARTED})


def sees_processes() -> bool:
    """Whether /proc shows the processes that this one starts, under the numbers by which it knows them.

    It does not where there is none, or that of another PID namespace (`unshare --pid` without `--mount-proc`).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            # Its number where /proc was mounted, and in each namespace from there down to its own (proc(5)).
            numbers = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), None)
        return len(numbers) == 1 if numbers else os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def check_sees_processes() -> None:
    """Raises ConfigError where nothing that a tool starts could be found and ended."""
    if not sees_processes():
        raise ConfigError(
            "nothing can be executed here: /proc is missing, or shows other processes than this one's, so what a tool "
            "starts could not be found and ended",
            hint="mount it: unshare --pid --mount-proc, bwrap --proc /proc, or mount -t proc proc /proc",
        )


def out_of_sight(run_dir: RunReader, run: Run) -> tuple[Doc, ...]:
    """Those of the run's `whereabouts` of which it cannot be told from here whether something is alive there.

    For whoever has the lease: what was left in its own place it has looked for.
    """
    if not run.whereabouts:
        return ()
    ended = {generation_ended(note) for note in run_dir.stale_notes()}
    left = [each for each in run.whereabouts if each.get("generation") not in ended]
    return tuple(each for each in left if not (_is_seen(each) or _ended_with_its_container(run_dir, run, each)))


def note_of_end(generation: int) -> Doc:
    """What an executor that was fenced out notes beside the run once all that it had begun has ended."""
    payload = {"generation": generation, "reason": "another executor has the run, and nothing of this one is alive"}
    return {"type": EventType.RUN_LEASE_RELEASED.value, "at": clock.timestamp(), "payload": payload}


def generation_ended(note: Doc) -> int | None:
    """The generation of whose executor `note` says so; None if it says something else."""
    payload = note.get("payload")
    if note.get("type") != EventType.RUN_LEASE_RELEASED or not isinstance(payload, dict):
        return None
    generation = payload.get("generation")
    return generation if type(generation) is int else None


def may_leave_processes() -> bool:
    """Whether something that this process has started may outlive it: if it has live children, or nobody can tell."""
    try:
        listed = [_read(f"/proc/self/task/{task}/children") for task in os.listdir("/proc/self/task")]
    except OSError:
        return True
    # One that has ended may not have been collected yet.
    return any(not has_ended(int(pid)) for line in listed for pid in line.split())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def words_of(left: Doc) -> str:
    """What is said of one of these among the `survivors` of a run."""
    number = left.get("pid")
    owner = f"{left.get('user')}@{left.get('host')} (pid {number} there)"
    return f"what {owner} may have left running, which cannot be seen from here"


def _is_seen(left: Doc) -> bool:
    """Whether all that is alive where that executor was is to be seen from here."""
    where, here, own = left.get("pidNamespace"), pid_namespace(), user_namespace()
    if not sees_processes():
        return False
    if own is not None and where == here and left.get("userNamespace") != own:
        return False  # listed, and not to be looked into
    return where == here or (here == _FIRST_NAMESPACE and own is None) or sees_namespace(where)


def _ended_with_its_container(run_dir: RunReader, run: Run, left: Doc) -> bool:
    """Whether the owner of that lease was the first process of its container, and is known to have ended.

    Its lock is free, which an executor keeps for as long as it lives. One that was fenced out may have it; and who only
    looks after lost runs goes on to the next one.
    """
    if left.get("pid") != _FIRST_PROCESS or run.fenced is not None or not sees_processes():
        return False
    return any(
        event.generation == left.get("generation") and event.type in _OF_AN_EXECUTOR for event in run_dir.all_events()
    )
