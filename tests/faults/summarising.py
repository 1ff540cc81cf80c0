"""What is left of a session whose history was being summarised when the command was killed anywhere."""

from __future__ import annotations

import json

from history import messages_of
from rig import DONE, NOT_OVER, SESSION, Stage, aftermath, until

SUMMARY = "They have talked about it."
COVERS = {"messageSeq": 2, "runId": None, "eventSeq": None}
SAID = [("user", "quick"), ("assistant", "The report is here.")]


def talked(stage: Stage) -> None:
    """A session with something to summarise."""
    assert stage.run("new", "--id", SESSION).code == DONE
    assert stage.send("quick").code == DONE


def then_history_is_as_it_was(stage: Stage, trial: int) -> list[str]:
    """No summary or a whole one; the history that it stands for is there, and the session goes on.

    Every other time the run is taken up by `recover`: then it ends, and there is a summary.
    """
    wrong = stage.check(settled=False) + _summary(stage)
    begun = any(message["mode"] == "compact" for message in messages_of(stage.root, SESSION))
    if trial % 2 and begun:
        done = stage.run("recover")
        if done.code not in (DONE, NOT_OVER):
            return [*wrong, f"recover: {done}"]
        until(lambda: stage.view("run-2")["status"] == "completed", "it has summarised")
        until(lambda: not stage.detached(), "its executor has ended")
        wrong += _summary(stage, is_made=True)
    return wrong + aftermath(stage, try_send_first=False) + _summary(stage)


def _summary(stage: Stage, *, is_made: bool = False) -> list[str]:
    said = [(message["role"], message["text"]) for message in messages_of(stage.root, SESSION)[:2]]
    wrong = [] if said == SAID else [f"history is {said}"]
    paths = list(stage.root.glob(f"accounts/*/sessions/{SESSION}/summary.json"))
    if not paths:
        return [*wrong, "there is no summary"] if is_made else wrong
    summary = json.loads(paths[0].read_bytes())
    if (summary["text"], summary["covers"]) != (SUMMARY, COVERS):
        wrong.append(f"the summary is {summary}")
    return wrong
