"""What `recover` has to make of a tree in which an executor, or a recoverer, was killed anywhere."""

from __future__ import annotations

from history import runs_of
from rig import DONE, NOT_OVER, SESSION, WAITING, Stage, aftermath, until

# More rounds than attempts: each may be killed before it began one.
ROUNDS = 4


def then_it_is_recovered(stage: Stage, trial: int) -> list[str]:
    """Goes on with `recover` alone until nothing is open; the user says what only he can know, and answers.

    The write of the run happened once or not at all, as its record says; whatever ended is not repeated.
    """
    wrong = stage.check(settled=False)
    stage.let_go()
    if not list(stage.root.glob(f"accounts/*/sessions/{SESSION}")) or not runs_of(stage.root, SESSION):
        return wrong + aftermath(stage, try_send_first=False)
    ended_before = _ended(stage)
    for _ in range(ROUNDS):
        wrong += _once(stage)
        if wrong or _is_settled(stage):
            break
    wrong += stage.check(settled=True)
    (run,) = runs_of(stage.root, SESSION)
    if run.status not in ("completed", "cancelled"):
        wrong.append(f"the run is {run.status}, and not because of anything that it was told")
    happened = [name for name in stage.effects() if name.startswith("run-1 ")]
    if len(happened) > 1:
        wrong.append(f"its write happened {len(happened)} times")
    repeated = [name for name, dispatched in ended_before.items() if run.operations[name].dispatched != dispatched]
    if repeated:
        wrong.append(f"{', '.join(repeated)} had ended and was done again")
    return wrong


def _once(stage: Stage) -> list[str]:
    done = stage.run("recover")
    if done.code not in (DONE, NOT_OVER):
        return [f"recover: {done}"]
    for line in done.lines():
        for operation in line["unknown"]:
            word = "succeeded" if f"run-1 {operation}" in stage.effects() else "failed"
            said = stage.run("reconcile", f"{SESSION}/run-1", operation, "--as", word)
            if said.code != DONE:
                return [f"reconcile: {said}"]
    if done.code == NOT_OVER:
        return [] if any(line["unknown"] for line in done.lines()) else [f"left for no reason: {done.lines()}"]
    seen = stage.run("show", "-f", f"{SESSION}/run-1")
    if seen.code == WAITING:
        answered = stage.send("week 12")
        return [] if answered.code == DONE else [f"answer: {answered}"]
    return []


def _is_settled(stage: Stage) -> bool:
    return all(run.status in ("completed", "cancelled", "failed") for run in runs_of(stage.root, SESSION))


def _ended(stage: Stage) -> dict[str, int]:
    """The operations that have ended, and how often each was dispatched."""
    (run,) = runs_of(stage.root, SESSION)
    return {
        name: operation.dispatched
        for name, operation in run.operations.items()
        if operation.status in ("succeeded", "failed", "skipped")
    }


def lost_over_a_read(stage: Stage) -> None:
    """A run whose executor died while a tool that reads was under way."""
    assert stage.run("new", "--id", SESSION).code == DONE
    stage.kill(stage.hold("hold"))
    until(lambda: stage.view("run-1")["executor"] == "lost", "it is lost")


def unknown(stage: Stage) -> None:
    """A run that stays reconciling: nobody knows how its write ended."""
    assert stage.run("new", "--id", SESSION).code == DONE
    executor = stage.hold("export")
    until(lambda: stage.effects() != [], "the tool has acted")
    stage.kill(executor)
    assert stage.run("recover").code == NOT_OVER
