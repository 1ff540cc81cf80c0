"""The situations in which a command is interrupted, and what has to hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from history import messages_of, runs_of
from recovering import lost_over_a_read, then_it_is_recovered, unknown
from repairing import damaged, then_it_is_put_right
from rig import DONE, NOT_OVER, SESSION, WAITING, Stage, aftermath, until
from summarising import talked, then_history_is_as_it_was


class Situation(NamedTuple):
    """`prepare` makes a tree, once; `begin` starts what runs beside the command, each time; `words` is the command.

    `after` returns what is wrong once the command has been interrupted; the number of the trial varies what it does.
    """

    prepare: Callable[[Stage], None]
    words: tuple[str, ...]
    after: Callable[[Stage, int], list[str]]
    begin: Callable[[Stage], object] = lambda stage: None
    text: str | None = None

    def set_up(self, stage: Stage) -> None:
        """Makes the tree and remembers it."""
        self.prepare(stage)
        stage.keep()

    def start(self, stage: Stage) -> None:
        """The tree as it was, and what runs beside the command."""
        stage.put_back()
        self.begin(stage)


def nothing(stage: Stage) -> None:
    """There is no tree yet."""


def a_session(stage: Stage) -> None:
    assert stage.run("new", "--id", SESSION).code == DONE


def a_file(stage: Stage) -> None:
    a_session(stage)
    (stage.base / "notes.md").write_text("the notes")


def queued(stage: Stage) -> None:
    """A run that was accepted by a process that died before it could execute it."""
    a_session(stage)
    stage.keep()
    words = ("send", SESSION, "quick")
    calls = stage.calls(*words, begin=stage.put_back)
    claim = next(call for call in calls if "/runs/run-1>, LOCK_EX|LOCK_NB" in call.text)
    stage.put_back()
    stage.interrupted(claim, "signal=KILL", *words, text="quick")
    assert stage.view("run-1")["status"] == "queued"


def waiting(stage: Stage) -> None:
    """A run that waits for an answer."""
    a_session(stage)
    assert stage.send("whole").code == WAITING


def lost(stage: Stage) -> None:
    """A run whose executor died while a tool that writes was under way."""
    a_session(stage)
    stage.kill(stage.hold("export"))
    seen = stage.view("run-1")
    assert seen["executor"] == "lost", seen


def cancelling_and_lost(stage: Stage) -> None:
    """As `lost`, and it was told to stop before: nobody is there to wind it down."""
    a_session(stage)
    executor = stage.hold("export")
    stage.freeze(executor)
    assert stage.run("cancel", SESSION).code == 6
    stage.kill(executor)


def hold(stage: Stage) -> object:
    return stage.hold()


def then_say_it_again(stage: Stage, trial: int) -> list[str]:
    """The same with the same key, as a script does that does not know whether it was heard."""
    wrong = stage.check(settled=False)
    heard = next((each for each in messages_of(stage.root, SESSION) if each.get("key") == "k1"), None)
    done = stage.run(*(SEND_AGAIN if trial % 2 else SEND), text="whole")
    # A run that was under way is lost now, and told as such.
    if done.code not in (WAITING, NOT_OVER) or (heard is None and done.code == NOT_OVER):
        wrong.append(f"the same again: {done}")
    elif done.lines()[0]["messageSeq"] != (heard["seq"] if heard else 1):
        wrong.append(f"the same again is message {done.lines()[0]['messageSeq']}, the first one was {heard}")
    return wrong + aftermath(stage, try_send_first=False)


def then_go_on(stage: Stage, trial: int) -> list[str]:
    return aftermath(stage, try_send_first=trial % 2 == 1)


def then_go_on_by_itself(stage: Stage, trial: int) -> list[str]:
    """The command may have started an executor for the run that it joined."""
    until(lambda: not stage.detached(), "its executor has ended")
    return then_go_on(stage, trial)


def then_the_run_completes(stage: Stage, trial: int) -> list[str]:
    """The run beside the command is none the worse for it."""
    wrong = stage.check(settled=False)
    stage.let_go()
    done = stage.run("show", "-f", f"{SESSION}/run-1")
    if done.code != DONE:
        wrong.append(f"the run: {done}")
    return wrong + aftermath(stage, try_send_first=trial % 2 == 1)


def then_the_queue_goes_on(stage: Stage, trial: int) -> list[str]:
    """What was accepted comes in its turn, and what was interrupted does not complete."""
    wrong = stage.check(settled=False)
    stage.let_go()
    runs = stage.run("show", SESSION).lines()[0]["runs"]
    # The command may have been killed while it executed its own run.
    lost = {run["runId"] for run in runs if run["executor"] == "lost"}
    if [run["status"] for run in runs] == ["waiting_input"]:
        # Nothing came to interrupt it: it waits for its answer, and so would whatever is behind it.
        lost.add(runs[0]["runId"])
    for run_id in lost:
        stage.run("cancel", f"{SESSION}/{run_id}", "--wait")
    done = stage.send("quick", "--if-busy", "queue")
    if done.code != DONE:
        wrong.append(f"a prompt behind them: {done}")
    prompts = [m for m in messages_of(stage.root, SESSION) if m["mode"] == "prompt"]
    for run, prompt in zip(runs_of(stage.root, SESSION), prompts, strict=True):
        stopped = run.run_id in lost or any(
            m["accept"]["atHead"] and m["accept"]["behind"][0] == run.run_id for m in prompts
        )
        if run.status != ("cancelled" if stopped else "completed"):
            wrong.append(f"{run.run_id} ({prompt['text']}) is {run.status}")
    return wrong + stage.check(settled=True)


STEER = ("steer", SESSION, "only new")
SEND = ("send", SESSION, "whole", "--key", "k1")
QUEUE = ("send", SESSION, "quick", "--if-busy", "queue", "--detach")
JOIN = ("send", SESSION, "quick", "--key", "k1", "--detach")
INTERRUPT = ("send", SESSION, "quick", "--if-busy", "interrupt")
SEND_AGAIN = (*SEND, "--mode", "prompt")
SITUATIONS = {
    "new": Situation(nothing, ("new", "--id", SESSION), then_go_on),
    "new beside others": Situation(a_session, ("new", "--id", "s2"), then_go_on),
    "send": Situation(a_session, ("send", SESSION, "whole"), then_go_on, text="whole"),
    "send with a key": Situation(a_session, SEND, then_say_it_again, text="whole"),
    "send with a file": Situation(a_file, (*SEND, "--attach", "notes.md"), then_say_it_again, text="whole"),
    "send to a queued run": Situation(queued, JOIN, then_go_on_by_itself, text="quick"),
    "answer": Situation(waiting, ("send", SESSION, "the whole of it"), then_go_on, text="the whole of it"),
    "steer a waiting run": Situation(waiting, (*STEER, "--key", "k1"), then_go_on, text="only new"),
    "queue": Situation(a_session, QUEUE, then_the_queue_goes_on, begin=hold, text="quick"),
    "interrupt": Situation(a_session, INTERRUPT, then_the_queue_goes_on, begin=hold, text="quick"),
    "interrupt a lost run": Situation(lost, INTERRUPT, then_the_queue_goes_on, text="quick"),
    "interrupt a waiting run": Situation(waiting, INTERRUPT, then_the_queue_goes_on, text="quick"),
    "steer": Situation(a_session, STEER, then_the_run_completes, begin=hold, text="only new"),
    "cancel a queued run": Situation(queued, ("cancel", SESSION), then_go_on),
    "cancel a waiting run": Situation(waiting, ("cancel", SESSION), then_go_on),
    "cancel": Situation(a_session, ("cancel", SESSION), then_go_on, begin=hold),
    "send, then recover": Situation(a_session, ("send", SESSION, "whole"), then_it_is_recovered, text="whole"),
    "recover": Situation(lost_over_a_read, ("recover",), then_it_is_recovered),
    "recover a lost write": Situation(lost, ("recover",), then_it_is_recovered),
    "reconcile": Situation(
        unknown, ("reconcile", f"{SESSION}/run-1", "op-2", "--as", "succeeded"), then_it_is_recovered
    ),
    "compact": Situation(talked, ("compact", SESSION), then_history_is_as_it_was),
    "repair": Situation(damaged, ("check", "--repair"), then_it_is_put_right),
    "resume": Situation(lost_over_a_read, ("resume", SESSION), then_it_is_recovered),
    "cancel a lost run": Situation(lost, ("cancel", SESSION), then_go_on),
    "cancel a lost run again": Situation(cancelling_and_lost, ("cancel", SESSION), then_go_on),
}
