"""The example's story, played by its own script, leaves exactly the tree that is kept as an example of the format.

The kept tree is `tests/golden/livestream-review.txt`. After a change that is meant to change the tree, write it again
with `AGENTRUN_WRITE_GOLDEN=1 make test ARGS="-k livestream"`, and read the difference before you commit it.

# covers A5 A6 A9 A17 A34 A37 A52 A71 A72 A73 A75 B16 B49 B50 B51 B52 B53
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.testing.golden import normalised_tree

PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "examples" / "livestream-review"
GOLDEN = PROJECT / "tests" / "golden" / "livestream-review.txt"

# For whichever of the tests plays it.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The directory of the session that the story leaves behind."""
    root = tmp_path_factory.mktemp("root")
    environment = {**os.environ, "AGENTRUN_ROOT": str(root)}
    played = subprocess.run(
        [sys.executable, str(EXAMPLE / "play.py")],
        cwd=EXAMPLE,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    (found,) = root.glob("accounts/*/sessions/*")
    return found


def events_of(session, run):
    lines = (session / "runs" / run / "operations.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_the_tree_is_the_golden_one(session):
    config = events_of(session, "run-1")[0]["payload"]["config"]
    (remote,) = [e["payload"]["remoteId"] for e in events_of(session, "run-3") if e["type"] == "tool.remote_id"]
    words = {
        session.name: "SESSION",
        str(EXAMPLE): "EXAMPLE",
        config["sha256"]: "CONFIG-SHA256",
        remote: "REMOTE-ID",
    }
    tree = normalised_tree(str(session), words)
    text = "".join(f"===== {path}\n{content}" for path, content in tree.items())
    if os.environ.get("AGENTRUN_WRITE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text.splitlines() == GOLDEN.read_text("utf-8").splitlines()


@pytest.mark.slow
def test_the_report_tells_what_the_data_hold(session):
    report = (session / "runs" / "run-1" / "report.md").read_text("utf-8")
    totals = new_product_revenue()
    for (evening, part), revenue in totals.items():
        assert re.search(rf"\| {evening} \| {part} \| {revenue:.2f} \|", report), (evening, part, revenue)
    this, before = totals["2025-06-12", "from 21:10"], totals["2025-06-05", "from 21:10"]
    assert this < before / 3, "the drop that the story is about is in the data"


@pytest.mark.slow
def test_only_the_failed_query_was_tried_again_and_its_failure_is_recorded(session):
    attempts = [
        (event["payload"]["operationId"], event["payload"]["attempt"], event["payload"]["status"])
        for event in events_of(session, "run-1")
        if event["type"] == "tool.finished" and event["payload"]["operationId"] in ("op-2", "op-3")
    ]
    assert sorted(attempts) == [("op-2", 1, "failed"), ("op-2", 2, "succeeded"), ("op-3", 1, "succeeded")]
    run = json.loads((session / "runs" / "run-1" / "run.json").read_text("utf-8"))
    assert run["usage"]["retries"] == 1


@pytest.mark.slow
def test_the_stopped_export_is_unresolved_everywhere_it_is_told(session):
    run = json.loads((session / "runs" / "run-3" / "run.json").read_text("utf-8"))
    (operation,) = run["unresolvedOperations"]
    assert operation["remoteId"].startswith("export-")
    closing = json.loads((session / "messages.jsonl").read_text("utf-8").splitlines()[-1])
    assert closing["role"] == "system"
    assert operation["remoteId"] in closing["text"]
    types = [event["type"] for event in events_of(session, "run-3")]
    after = types[types.index("run.cancel_requested") + 1 :]
    assert after == ["tool.finished", "run.finished"], "nothing new was started after the stop"


def new_product_revenue():
    """Paid revenue of products launched in the last 30 days, by evening and part: counted from the rows themselves."""
    import csv
    from datetime import date, timedelta

    totals = {}
    with (EXAMPLE / "data" / "orders.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            evening = date(2025, 6, 12)
            if row["status"] != "paid" or date.fromisoformat(row["launched"]) < evening - timedelta(days=30):
                continue
            part = "before 21:10" if row["minute"] < "21:10" else "from 21:10"
            key = (row["date"], part)
            totals[key] = totals.get(key, 0.0) + float(row["amount"])
    return {key: round(total, 2) for key, total in totals.items()}
