"""A session with damage of each kind that a repair puts right, and what has to hold wherever that repair was killed."""

from __future__ import annotations

import json
from pathlib import Path

from rig import DONE, SESSION, Stage, aftermath

FORGED = b"somebody else's report\n"
DAMAGED = b"other bytes\n"
TORN = b'{"seq":7,"sessionId":"s1","ru'
UNTRUE = "it is not so"


def damaged(stage: Stage) -> None:
    """Two runs that have completed, and much of what follows from their records broken."""
    assert stage.run("new", "--id", SESSION).code == DONE
    assert stage.send("quick", "--key", "k1").code == DONE
    assert stage.send("quick").code == DONE
    session = _session(stage)
    first, second = session / "runs/run-1", session / "runs/run-2"
    for log in (session / "messages.jsonl", second / "operations.jsonl"):
        with log.open("ab") as file:
            file.write(TORN)
    (first / "report.md").write_bytes(FORGED)
    (first / "run.json").unlink()
    for hint in (session / "keys").iterdir():
        hint.unlink()
    snapshot = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(snapshot | {"reason": UNTRUE}))
    (second / "blobs" / snapshot["report"]["sha256"]).write_bytes(DAMAGED)
    (session / "active").write_text("run-1\n")
    (session / "active").chmod(0o600)


def then_it_is_put_right(stage: Stage, trial: int) -> list[str]:
    """One repair puts the rest right, a second one has nothing to do; of all that was replaced one copy is kept."""
    wrong = []
    done = stage.run("check", "--repair")
    if done.code != DONE:
        wrong.append(f"repair: {done}")
    before = _files(_session(stage))
    again = stage.run("check", "--repair")
    if again.code != DONE or any(line["finding"]["repaired"] for line in again.lines()):
        wrong.append(f"a second repair: {again}")
    if _files(_session(stage)) != before:
        wrong.append("a second repair changed something")
    kept = [data for name, data in before.items() if ".torn-" in name or ".damaged-" in name]
    expected = {FORGED: 1, DAMAGED: 1, TORN: 2}
    found = {data: kept.count(data) for data in expected}
    if found != expected or sum(UNTRUE.encode() in data for data in kept) != 1:
        wrong.append(f"kept is {sorted(name for name in before if '.torn-' in name or '.damaged-' in name)}")
    return wrong + aftermath(stage, try_send_first=trial % 2 == 1)


def _session(stage: Stage) -> Path:
    (path,) = stage.root.glob(f"accounts/*/sessions/{SESSION}")
    return path


def _files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}
