"""Eight processes that write into one session at once, in bursts, and each in step with a clock.

Each record lasts through a power cut before its writer goes on, and its number is the next one: they are counted at the
end. The share is that of the writer that got least, divided by that of the one that got most.

agentrun's records are late results, which are synced when the lock has been let go, so that writers share a sync. What
the user says is synced inside the lock, because others act on it at once: inputs have a row of their own, and no reach.

What bounds the late results is the processor, not the disk. By a profile of the eight, more than half of its time goes
into the interpreter: before a writer appends, it reads, checks and folds what the seven others have appended, 7 us each
and more on cold caches. A fifth goes into fdatasync(2), a seventh into switching between processes. SQLiteSession's
writers take as much of the processor for a record, and stand in each other's way besides.

`raw` is a write(2) to a file of its own and fdatasync(2): what the disk makes one wait who is in nobody's way. Each 50
times a second, where nobody has to wait for a processor, the longest waits of agentrun are such too: of the eight
longest among 4,800, from 12 to 16 ms, all but a third of a millisecond (of one, 1.4) went by in fdatasync(2), behind
the lock, which was held for a quarter of a millisecond and waited for for less. So the longest wait, and its ratio to
another's, is for the disk to say.

On a machine that is overloaded (twenty processes that want two processors) it is the lock, and for up to 0.8 s: who is
first in the kernel's queue needs a processor before it has the lock, and whoever comes by then has it first.
"""

from __future__ import annotations

import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import peers
from frame import Reach, Size, median, percentile, reach_table, run, shown, table
from workers import Worker

from agentrun.states import EventType
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept

WRITERS = 8
PER_SECOND = 50
INPUTS = "agentrun, inputs"
RAW = "raw, a file each"


def measure(size: Size) -> str:
    writers, seconds, rounds = size.of(WRITERS, 2), size.of(20, 2) / 10, size.of(5, 1)
    place = size.folder / "place"
    place.mkdir()
    executors = [_executed(place, name) for name in ("crowd", "inputs")]
    executors[0].append(EventType.MODEL_REQUEST_STARTED, operationId="op-0", model="m", attempt=1)
    with ExitStack() as stack:
        crowds = {"agentrun": _crowd(stack, "agentrun", place, writers)}
        crowds[INPUTS] = _crowd(stack, "inputs", place, writers)
        crowds[RAW] = _crowd(stack, "raw", place, writers)
        crowds["sqlite3, WAL, FULL"] = _crowd(stack, "sqlite", place, writers)
        python = peers.python(peers.OPENAI_AGENTS, size)
        if python:
            crowds["openai-agents SQLiteSession"] = _crowd(stack, "openai_agents", place, writers, python)
        texts, reaches = [], []
        for name, pause in (("In bursts", 0.0), (f"Each {PER_SECOND} times a second", 1 / PER_SECOND)):
            taken: dict[str, list[list[list[float]]]] = {each: [] for each in crowds}
            for _ in range(rounds):
                for each, crowd in crowds.items():
                    taken[each].append(_together(crowd, seconds, pause))
            texts.append(f"{name}:\n\n{_table(taken, seconds)}")
            reaches += _reaches(name.lower(), taken, paced=bool(pause))
    log = (place / "accounts").glob("*/sessions/crowd/runs/run-1/operations.jsonl")
    seqs = [json.loads(line)["seq"] for line in next(log).read_text("utf-8").splitlines()]
    dense = "yes" if seqs == list(range(1, len(seqs) + 1)) else "**no**"
    texts += [reach_table(reaches), f"Numbers dense over all {len(seqs):,} records: {dense}.", peers.missing_text()]
    return "\n\n".join(filter(None, texts))


def _executed(place: Path, name: str) -> Executor:
    session = Tree(str(place)).create_session(session_id=name)
    return Executor(session, accept(session).run_id)


def _crowd(stack: ExitStack, kind: str, place: object, writers: int, python: object = None) -> list[Worker]:
    more = {"python": python} if python else {}
    crowd = [stack.enter_context(Worker("crowd", kind, place, f"w{number}", **more)) for number in range(writers)]
    for worker in crowd:
        worker.call("ready")
    return crowd


def _together(crowd: list[Worker], seconds: float, pause: float) -> list[list[float]]:
    begin = time.time() + 0.05
    for number, worker in enumerate(crowd):
        worker.begin("write", begin + pause * number / len(crowd), seconds, pause)
    return [worker.result() for worker in crowd]


def _share(rounds: list[list[list[float]]]) -> float:
    counts = [sum(len(round_[writer]) for round_ in rounds) for writer in range(len(rounds[0]))]
    return min(counts) / max(max(counts), 1)


def _rate(rounds: list[list[list[float]]], seconds: float) -> float:
    return statistics.median(sum(map(len, writers)) for writers in rounds) / seconds


def _waits(rounds: list[list[list[float]]]) -> list[list[float]]:
    return [waits for writers in rounds for waits in writers if waits]


def _table(taken: dict[str, list[list[list[float]]]], seconds: float) -> str:
    rows = []
    for name, rounds in taken.items():
        waits = _waits(rounds)
        times = [shown(median(waits)), shown(percentile(waits)), shown(max(map(max, waits)))]
        rows.append((name, f"{_rate(rounds, seconds):,.0f}", *times, f"{_share(rounds):.2f}"))
    return table(("", "records a second", "median wait", "p99", "longest", "least / most"), rows)


def _reaches(when: str, taken: dict[str, list[list[list[float]]]], *, paced: bool) -> list[Reach]:
    ours = taken["agentrun"]
    reaches = [Reach(f"{when}: least / most", _share(ours), 0.9, or_more=True)]
    theirs = taken.get("openai-agents SQLiteSession")
    if theirs:
        longest = max(map(max, _waits(ours))) / max(map(max, _waits(theirs)))
        reaches.append(Reach(f"{when}: longest wait, x SQLiteSession", longest, 0.1))
        if not paced:
            faster = _rate(ours, 1) / _rate(theirs, 1)
            reaches.append(Reach(f"{when}: records, x SQLiteSession", faster, 4, or_more=True))
    return reaches


if __name__ == "__main__":
    run("Eight processes on one session", measure, __doc__)
