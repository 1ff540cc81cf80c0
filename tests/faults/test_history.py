"""The checker that judges the other tests of this folder finds nothing in a sound tree, and every planted fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from history import Ledger, problems
from rig import DONE, SESSION, WAITING, Stage

pytestmark = pytest.mark.slow

Doc = dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A session with a run that completed after a question, one that was cancelled, and one that waits."""
    stage = Stage(tmp_path_factory.mktemp("sound"))
    assert stage.run("new", "--id", SESSION).code == DONE
    assert stage.send("whole").code == WAITING
    assert stage.send("week 12").code == DONE
    assert stage.send("whole").code == WAITING
    assert stage.run("cancel", SESSION).code == DONE
    assert stage.send("whole").code == WAITING
    return stage


def test_a_sound_tree_has_no_fault(sound: Stage) -> None:
    assert sound.check(settled=True) == []
    assert len(sound.ledger.messages) == 4
    assert sound.ledger.ends == {(SESSION, "run-2"): "cancelled"}


def _change(name: str, change: Callable[[list[Doc]], object]) -> Callable[[Path], None]:
    """Changes the records of a log."""

    def act(session: Path) -> None:
        records = [json.loads(line) for line in (session / name).read_bytes().splitlines()]
        change(records)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (session / name).write_text(text, encoding="utf-8")

    return act


def _set(name: str, **fields: Any) -> Callable[[Path], None]:
    """Changes fields of a document."""

    def act(session: Path) -> None:
        document = json.loads((session / name).read_bytes())
        (session / name).write_text(json.dumps(document | fields))

    return act


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda session: _private(session / name, text)


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _remove(name: str) -> Callable[[Path], None]:
    return lambda session: (session / name).unlink()


def _again(records: list[Doc], kind: str) -> None:
    """Appends the first record of that kind once more."""
    record = next(each for each in records if kind in (each.get("type"), each.get("mode")))
    records.append(record | {"seq": len(records) + 1})


def _without(records: list[Doc], kind: str) -> None:
    """Takes the last record of that kind away, leaving the numbers dense."""
    records.remove([each for each in records if kind in (each.get("type"), each.get("mode"))][-1])
    for number, each in enumerate(records, start=1):
        each["seq"] = number


def _payload(records: list[Doc], kind: str, **fields: Any) -> None:
    next(each for each in records if each["type"] == kind)["payload"].update(fields)


EVENTS = "runs/run-1/operations.jsonl"
FAULTS: dict[str, Callable[[Path], None]] = {
    "a message is gone": _change("messages.jsonl", lambda records: records.pop()),
    "a number is used twice": _change("messages.jsonl", lambda records: records[-1].update(seq=len(records) - 1)),
    "a message has other words": _change("messages.jsonl", lambda records: records[0].update(text="other")),
    "an input is in another run": _change("messages.jsonl", lambda records: records[2].update(runId="run-2")),
    "a report is told twice": _change("messages.jsonl", lambda records: _again(records, "report")),
    "an end is not told": _change("messages.jsonl", lambda records: _without(records, "ended")),
    "a question is not asked": _change("messages.jsonl", lambda records: records.pop()),
    "a key is accepted twice": _change("messages.jsonl", lambda records: [r.update(key="k") for r in records[:3:2]]),
    "an event is gone": _change(EVENTS, lambda records: records.pop(7)),
    "an input is delivered twice": _change(EVENTS, lambda r: _payload(r, "input.delivered", messageSeqs=[1, 1])),
    "another run's input is delivered": _change(EVENTS, lambda r: _payload(r, "input.delivered", messageSeqs=[1, 5])),
    "an input is not delivered": _change(EVENTS, lambda r: _payload(r, "input.delivered", messageSeqs=[])),
    "something stands behind the end": _change(EVENTS, lambda records: _again(records, "tool.started")),
    "it ends twice": _change(EVENTS, lambda records: _again(records, "run.finished")),
    "a generation is left out": _change(EVENTS, lambda records: records[1].update(generation=2)),
    "a tool was not registered": _change(EVENTS, lambda records: _without(records, "tool.registered")),
    "a tool has no result": _change(EVENTS, lambda records: _without(records, "tool.finished")),
    "an end does not name what is unresolved": _change(
        EVENTS, lambda r: _payload(r, "tool.finished", status="unknown", mayHaveEffects=True)
    ),
    "the wrong end": _change(EVENTS, lambda r: _payload(r, "run.finished", terminalStatus="failed")),
    "a snapshot says otherwise": _set("runs/run-1/run.json", status="running"),
    "a snapshot is ahead": _set("runs/run-1/run.json", appliedSeq=99),
    "an ended run has no snapshot": _remove("runs/run-1/run.json"),
    "a report has other bytes": _write("runs/run-1/report.md", "The report is there."),
    "a report is missing": _remove("runs/run-1/report.md"),
    "a cancelled run has a report": _write("runs/run-2/report.md", "The report is here."),
    "the report's bytes are gone": lambda session: shutil.rmtree(session / "runs/run-1/blobs"),
    "the slot is lost": _remove("active"),
    "the slot is another's": _write("active", "run-1\n"),
    "a run is missing": lambda session: shutil.rmtree(session / "runs/run-2"),
    "a run came from nowhere": lambda session: (session / "runs/run-4").mkdir(mode=0o700),
    "a file can be read by others": lambda session: (session / "session.json").chmod(0o644),
    "a session is about another": _set("session.json", sessionId="s2"),
    "the session is gone": lambda session: shutil.rmtree(session),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, sound: Stage, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(sound.root, root)
    (session,) = root.glob(f"accounts/*/sessions/{SESSION}")
    FAULTS[fault](session)
    assert problems(root, sound.ledger, settled=True)


def test_a_line_cut_off_is_no_acknowledgement() -> None:
    ledger = Ledger()
    line = '{"type":"accepted","sessionId":"s1","runId":"run-1","messageSeq":1,"mode":"prompt"}'
    ledger.heard(line)
    assert ledger.messages == {}
    ledger.heard(line + "\n")
    assert list(ledger.messages) == [("s1", 1)]
