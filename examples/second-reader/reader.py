"""Read one session with nothing but docs/format.md, check it, and tell what happened in it.

    python3 reader.py "$AGENTRUN_ROOT"/accounts/ann/sessions/session-1k1ef0nqbd6fa2w4

A second program that reads the tree, written from docs/format.md and docs/lifecycle.md alone. It imports nothing of
agentrun: it is here to show that the pages are enough, and to hold a fold of its own against each `run.json`.

Exit 0: all that the pages promise holds. Exit 1: something is wrong, and the lines with `WRONG` say what. What a crash
may leave and the next writer completes is not wrong; it is told in lines that begin with `note`.
"""

import hashlib
import sys
from collections import Counter
from pathlib import Path

from fold import Fold, Record
from tree import BEGINNINGS, Findings, Run, Session


def check_session(session: Session, found: Findings) -> None:
    prompts = [message["runId"] for message in session.own if message["mode"] in BEGINNINGS]
    expected = [f"run-{number}" for number in range(1, len(prompts) + 1)]
    found.check(prompts == expected, f"the prompts begin {', '.join(prompts)}")
    for name in sorted(session.runs.keys() - set(prompts)):
        found.check(False, f"{name}: has a directory and no prompt")
    for name in prompts:
        made = name in session.runs and session.runs[name].events
        found.note(not made, f"{name}: is accepted, and the next writer makes it")
    check_slot(session, prompts, found)
    for run in session.runs.values():
        found.check(bool(run.now) or not run.events, f"{run.name}: the first line that can be read is not run.accepted")
        if run.now:
            messages = [message for message in session.own if message["runId"] == run.name]
            if not run.is_damaged:
                check_beginning(run, messages, found)
                check_inputs(run, messages, found)
            check_blobs(run, found)
            check_end(run, messages, run.name == session.active, found)


def check_slot(session: Session, prompts: list[str], found: Findings) -> None:
    active, open_runs = session.active, [run.name for run in session.runs.values() if run.now and not run.is_over]
    begun = [name for name in open_runs if session.runs[name].now["startedAt"]]
    found.check(len(begun) < 2, f"more than one run has begun and is open: {', '.join(begun)}")
    found.check(active is None or active in prompts, f"active names {active}, which nobody began")
    found.check(active in (None, *open_runs) or not open_runs, f"active names {active}; open is {', '.join(open_runs)}")
    found.note(
        active is None and bool(open_runs), f"{', '.join(open_runs)}: has not the slot; the next writer gives it"
    )


def check_beginning(run: Run, messages: list[Record], found: Findings) -> None:
    """`run.accepted` repeats the prompt, and each lease is of the next generation."""
    accepted: Record = run.events[0]["payload"]
    prompt: Record = next((message for message in messages if message["mode"] in BEGINNINGS), {})
    accept = prompt.get("accept", {}) | {"messageSeq": prompt.get("seq"), "key": prompt.get("key")}
    differing = sorted(name for name in accept.keys() & accepted.keys() if accept[name] != accepted[name])
    found.check(not differing, f"{run.name}: run.accepted differs from its prompt in {differing}")
    generation = 0
    for event in run.events:
        claims = event["type"] == "run.lease_acquired"
        generation += claims
        right = event["generation"] == generation
        found.check(right, f"{run.name}: seq {event['seq']} has generation {event['generation']}, not {generation}")


def check_inputs(run: Run, messages: list[Record], found: Findings) -> None:
    """Each input is delivered once at most; of a run that is over, it is delivered or returned. Questions are asked."""
    inputs = {message["seq"] for message in messages if message["role"] == "user"}
    taken = Counter(run.now["deliveredInputs"] + run.now["returnedInputs"])
    for seq in sorted(seq for seq in taken if taken[seq] > 1):
        found.check(False, f"{run.name}: input #{seq} is delivered or returned {taken[seq]} times")
    found.check(taken.keys() <= inputs, f"{run.name}: {sorted(taken.keys() - inputs)} are no inputs of this run")
    forgotten = sorted(inputs - taken.keys())
    found.check(not (run.is_over and forgotten), f"{run.name}: {forgotten} are neither delivered nor returned")
    asked = [event["payload"].get("questionId") for event in run.events if event["type"] == "run.waiting_input"]
    told = [message.get("questionId") for message in messages if message["mode"] == "question"]
    late = run.now["waitingFor"] is not None and told == asked[:-1]
    found.note(late, f"{run.name}: its question is put into the conversation by the next writer")
    found.check(late or told == asked, f"{run.name}: asked {asked}, and the conversation has {told}")


def check_blobs(run: Run, found: Findings) -> None:
    for name, data in run.blobs.items():
        found.check(hashlib.sha256(data).hexdigest() == name, f"{run.name}: blob {name} has not the bytes of its name")
    for event in run.events:
        for blob in filter(None, (event["payload"].get("blob"), event["payload"].get("report"))):
            size = len(run.blobs.get(blob["sha256"], b""))
            found.check(
                size == blob["bytes"], f"{run.name}: seq {event['seq']}: its blob is missing or of another size"
            )


def check_end(run: Run, messages: list[Record], has_slot: bool, found: Findings) -> None:
    """One closing message, the report as it was committed, and no lease.

    What is missing of that, the next writer makes, if the run has the slot or never started.
    """
    name, status = run.name, run.now["status"]
    completable = has_slot or not run.now["startedAt"]
    closing = [message for message in messages if message["mode"] in ("report", "ended")]
    modes = [message["mode"] for message in closing]
    delivered = status == "completed" and run.now["report"] is not None
    wanted = ([["report"]] if delivered else [["ended"]]) if run.is_over else [[]]
    if run.is_over and completable:
        wanted.append([])
        found.note(has_slot or not closing, f"{name}: is over, and the next writer completes its end")
    found.check(modes in wanted, f"{name}: is {status} and has the closing messages {modes}")
    found.check(not run.lease or not run.is_over or completable, f"{name}: is over and has a lease.json")
    if delivered:
        committed = run.blobs.get((run.now["report"] or {}).get("sha256", ""))
        there = run.report is not None or not completable
        found.check(not there or run.report == committed, f"{name}: report.md is not the committed report")
        same = all(message["text"].encode() == committed for message in closing)
        found.check(same, f"{name}: the conversation has another report than the committed one")
    else:
        found.check(run.report is None, f"{name}: is {status} and has a report.md")
        said = closing[0]["text"] if closing else ""
        unsaid = [one["operationId"] for one in run.now["unresolvedOperations"] if one["operationId"] not in said]
        found.check(not closing or not unsaid, f"{name}: its end says nothing of {unsaid}")


def shown(text: object, width: int = 90) -> str:
    """One line of it, without what a terminal would obey."""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(text or "")).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def tell(session: Session, found: Findings) -> None:
    print(f"{session.id}  {shown(session.about.get('title'))}")
    for message in session.messages:
        who = (message["actor"] if isinstance(message["actor"], dict) else {}).get("user") or message["role"]
        print(f"  #{message['seq']} {message['runId']} {message['mode']} ({who}): {shown(message['text'])}")
    for run in session.runs.values():
        if run.fold:
            tell_run(run, run.fold, run.name == session.active)
    for name in session.aside:
        print(f"set aside: {name}")
    for text in found.notes:
        print(f"note: {text}")
    for text in found.wrong:
        print(f"WRONG: {text}")


def tell_run(run: Run, fold: Fold, has_slot: bool) -> None:
    now, usage = run.now, run.now["usage"]
    driven = "executor lost" if run.is_lost else "driven" if run.alive else ""
    slot = "has the slot" if has_slot else ""
    print(f"{run.name}: {', '.join(part for part in (now['status'], driven, slot, shown(now['reason'])) if part)}")
    print(f"  turns {usage['turns']}, tool calls {usage['toolCalls']}, retries {usage['retries']}")
    for one in sorted(fold.operations.values(), key=lambda one: one["registeredAt"] or ""):
        attempts = f", attempt {one['attempt']}" if (one["attempt"] or 0) > 1 else ""
        remote = f", remote id {shown(one['remoteId'])}" if one["remoteId"] else ""
        error = f": {shown(one['error'])}" if one["error"] else ""
        print(f"  {one['operationId']} {one['kind']} {shown(one['name'])}: {one['status']}{attempts}{remote}{error}")
    for stop in (event["payload"] for event in fold.stops):
        who = stop["actor"] if isinstance(stop.get("actor"), dict) else {}
        asked = f"{stop.get('intent')} by {who.get('user')}@{who.get('host')} ({stop.get('via')})" if who else "failure"
        print(f"  stop: {asked}: {shown(stop.get('reason'))}")
    if run.cancel and not fold.stops and not run.is_over:
        print("  stop: asked by the file cancel, not taken up")
    if waiting := now["waitingFor"]:
        print(f"  waits for {waiting.get('kind')} {waiting.get('questionId')}: {shown(waiting.get('text'))}")
    for seq in now["returnedInputs"]:
        print(f"  returned: #{seq}")
    for one in now["unresolvedOperations"]:
        print(f"  unresolved: {one['operationId']} {shown(one['name'])} {one['status']}, resource {one['resource']}")


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1], "session.json").is_file():
        print("usage: python3 reader.py DIRECTORY-OF-A-SESSION", file=sys.stderr)
        return 2
    found = Findings()
    session = Session(Path(sys.argv[1]).resolve(), found)
    check_session(session, found)
    tell(session, found)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
