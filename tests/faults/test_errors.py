"""A disk that refuses at any system call: it is said, nothing is acknowledged, and the next command works.

# case C2 C15
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import DONE, NOT_OVER, WAITING, Call, Done, Stage
from situations import SITUATIONS
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

SAMPLE = 4
# Every other call: what comes before and after a call that fails is mostly covered by its neighbours.
EVERY = 2
# Whether a certain call comes depends on how often the command looks at what it waits for.
TRIES = 3

# How each kind of call fails on a disk that is full (bytes, inodes, quota), broken, mounted read-only or denied, or in
# a process with too many files. Each next call of a kind fails in the next way.
REFUSALS = {
    "write": ("ENOSPC", "EIO", "EDQUOT", "EFBIG"),
    "openat": ("EMFILE", "ENOSPC", "EACCES", "EROFS"),
    "mkdir": ("ENOSPC", "EROFS", "EACCES"),
    "mkdirat": ("ENOSPC", "EROFS", "EACCES", "EDQUOT"),
    "linkat": ("EIO", "ENOSPC", "EROFS"),
    "renameat": ("EROFS", "EIO", "ENOSPC", "EACCES"),
    "unlinkat": ("EIO", "EROFS", "EACCES"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "EDQUOT", "ENOSPC"),
    "ftruncate": ("EIO",),
    "flock": ("ENOLCK",),
}
# The exit code and its word.
SAID = {"EACCES": ((9,), "denied")}
STORAGE = ((11,), "storage")
# It says what was denied, goes on with the other runs, and ends with 6: something is left.
SAID_BY_RECOVER = {"EACCES": ((6, 9), "denied")}
# What is damaged and could not be put right is damaged.
SAID_BY_CHECK = {"EACCES": ((9, 10), "denied")}

LEFT_OUT = ("new beside others", "send with a key", "steer", "cancel")
COMMANDS = [name for name in SITUATIONS if name not in LEFT_OUT]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_refusal_now_and_then_is_loud_and_loses_nothing(name: str, tmp_path: Path) -> None:
    _refuse(name, tmp_path, lambda calls: calls[len(calls) // (2 * SAMPLE) :: max(1, len(calls) // SAMPLE)])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_refusal_at_every_other_call_is_loud_and_loses_nothing(name: str, tmp_path: Path) -> None:
    _refuse(name, tmp_path, lambda calls: calls[::EVERY])


def _refuse(name: str, base: Path, choose: Callable[[list[Call]], list[Call]]) -> None:
    situation = SITUATIONS[name]
    stage = Stage(base)
    situation.set_up(stage)
    calls = choose(stage.calls(*situation.words, begin=lambda: situation.start(stage)))
    wrong, refusals = [], 0
    used: Counter[str] = Counter()
    for trial, call in enumerate(calls):
        ways = REFUSALS[call.name]
        error = ways[(len(name) + used[call.name]) % len(ways)]
        used[call.name] += 1
        for _ in range(TRIES):
            situation.start(stage)
            done = stage.interrupted(call, f"error={error}", *situation.words, text=situation.text)
            made = stage.refused()
            met, faults = made[-1] if made else call, []
            if made and _is_needless(made):
                faults = [] if done.code in (DONE, WAITING, NOT_OVER) else [f"it did not go on: {done}"]
            elif made:
                faults = _not_loud(stage, situation.words, done, error, met)
            faults += situation.after(stage, trial)
            wrong += [f"{error} at {met} ({met.text[:150]}): {each}" for each in faults]
            if made:
                refusals += 1
                break
    assert not wrong, "\n".join(wrong)
    # The order of what runs at the same time varies, and the last call of a kind may not come.
    assert refusals >= len(calls) * 0.8, f"{refusals} of {len(calls)} calls were reached"


def _is_needless(made: list[Call]) -> bool:
    """Whether the last call writes `run.json` right before a tool acts: the run goes on without, the log has all."""
    events = [call.text for call in made if call.name == "write" and "/operations.jsonl>" in call.text]
    return ".new-run.json" in made[-1].text and bool(events) and '"type":"tool.started"' in events[-1]


def _not_loud(stage: Stage, words: tuple[str, ...], done: Done, error: str, call: Call) -> list[str]:
    if error == "EACCES" and '"activity.jsonl"' in call.text:
        return []  # a hint that may not be had keeps nobody from anything; what was asked for is looked at all the same
    if words[0] == "check" and call.name == "flock":
        return []  # looking needs no lock; whoever repairs asks for it again
    codes, word = {"recover": SAID_BY_RECOVER, "check": SAID_BY_CHECK}.get(words[0], SAID).get(error, STORAGE)
    if done.code not in codes:
        return [f"it was not said: {done}"]
    try:
        said = json.loads(done.err.splitlines()[-1])["error"]
    except (ValueError, KeyError, IndexError):
        return [f"no error in one line: {done.err}"]
    if said["code"] != word or error not in said["message"] or str(stage.root) not in said["message"]:
        return [f"it does not say what and where: {said}"]
    is_log = "messages.jsonl>" in call.text or "operations.jsonl>" in call.text
    if call.name == "fdatasync" and is_log and "unknown" not in said["message"]:
        return [f"it does not say that nobody knows what survived: {said}"]
    return []
