"""Plays one review in two terminals, with the real program and real tools, and checks that all goes as told.

    python3 play.py

The tree is made under `$AGENTRUN_ROOT`, or in a new temporary directory, and is kept. Nothing here waits by
the clock: what has to happen first is awaited as an event of the run. Exits 1 as soon as something is not as
told.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stage import (
    CANCELLED,
    DONE,
    NOT_OVER,
    WAITING_INPUT,
    Event,
    NotAsTold,
    RecordedRun,
    Terminal,
    Watcher,
    environment_for,
    expect,
    payloads,
)

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "agentrun.toml"


def main() -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # in any locale, and in step with what is written to stderr
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    make_data()
    with tempfile.TemporaryDirectory(prefix="livestream-busy-") as directory:
        play = Play(root_directory(), Path(directory) / "warehouse-is-busy")
        try:
            play.story()
        except NotAsTold as failure:
            print(f"\nplay: not as told: {failure}\n  the tree is in {play.root}", file=sys.stderr)
            return 1
        finally:
            play.end_what_still_runs()
    return 0


def make_data() -> None:
    if not all((HERE / "data" / f"{table}.csv").exists() for table in ("orders", "traffic", "stock")):
        print("$ python3 make_data.py")
        subprocess.run([sys.executable, "make_data.py"], cwd=HERE, check=True)


def root_directory() -> Path:
    named = os.environ.get("AGENTRUN_ROOT")
    return Path(named).absolute() if named else Path(tempfile.mkdtemp(prefix="livestream-review-"))


def say(text: str) -> None:
    print(f"\n# {text}")


class Play:
    """The story. Its steps share the tree, the session, and a file that makes the warehouse slow."""

    def __init__(self, root: Path, busy_file: Path) -> None:
        self.root = root
        self._busy_file = busy_file
        self._session = ""
        environment = environment_for(root, CONFIG, busy_file)
        self._one = Terminal("terminal 1", environment)
        self._two = Terminal("terminal 2", environment)
        self._watcher = Watcher(environment)

    def story(self) -> None:
        self._set_up_both_terminals()
        self._make_session()
        self._ask_why_revenue_dropped()
        self._answer_and_steer()
        self._read_the_report()
        self._ask_about_traffic()
        self._cancel_the_export()
        self._look_at_what_is_left()
        self._say_what_to_try()

    def end_what_still_runs(self) -> None:
        self._busy_file.unlink(missing_ok=True)
        self._one.end_what_still_runs()
        self._two.end_what_still_runs()

    def _set_up_both_terminals(self) -> None:
        say("One review, in two terminals. Both know where the tree is and how the analyst is configured.")
        self._print_exports()

    def _print_exports(self) -> None:
        print(f"export AGENTRUN_ROOT={self.root}")
        print(f"export AGENTRUN_CONFIG={CONFIG}")
        print(f'export PATH="{Path(sys.executable).parent}:$PATH"')

    def _make_session(self) -> None:
        say("A session: the whole conversation about last night.")
        printed = self._one.run("new", "last night's live stream").stdout.split()
        expect(len(printed) == 1, f"`new` prints the session's id and nothing else to a pipe, not {printed}")
        self._session = printed[0]

    def _ask_why_revenue_dropped(self) -> None:
        say("run-1. Two queries at once. The warehouse is still loading: one of them fails, and is retried.")
        say("Then the analyst has a question. Nobody can be asked through a pipe, so `send` leaves: exit 5.")
        self._one.run("send", self._session, "analyse why revenue dropped", exits={WAITING_INPUT})

        run = self._recorded("run-1")
        expect(run.status == "waiting_input", f"run-1 waits for its user, not {run.status}")
        tools = run.tools_of_first_turn()
        wanted = {"query_sales", "query_traffic"}
        expect(tools == wanted, f"the first turn asks for sales and traffic, not {tools}")
        retried = run.retried_tools()
        expect(retried == ["query_sales"], f"query_sales and nothing else is retried, not {retried}")

    def _answer_and_steer(self) -> None:
        say("The other terminal sees what run-1 waits for, and answers. The same run goes on.")
        self._two.run("show", self._session)
        self._busy_file.touch()  # the next slow query lasts until it is gone, so the steer finds it running
        answering = self._two.start("send", self._session, "launched in the last 30 days")
        self._watcher.until(f"{self._session}/run-1", second_queries_started, "the second queries started")

        say("A change of course while the tools run. It aborts none of them; the next model request has it.")
        self._one.run("steer", self._session, "only new products")
        self._busy_file.unlink()
        self._two.finish(answering)

        run = self._recorded("run-1")
        expect(run.status == "completed", f"run-1 is completed, not {run.status}")
        modes = run.modes_delivered()
        expect(modes == ["prompt", "answer", "steer"], f"each input is delivered once, in order, not {modes}")
        around = run.around_steer()
        wanted = ["tool.finished", "model.request.started"]
        expect(around == wanted, f"the steer is delivered after the tools, before the model, not {around}")
        failed = run.unsuccessful_tools()
        expect(not failed, f"each query succeeded in the end, except {failed}")

    def _read_the_report(self) -> None:
        say("The report of run-1. Its tables are what the queries returned.")
        report = self._one.run("show", f"{self._session}/run-1", "--report").stdout
        expect("Only new products" in report, "the report is about only new products")
        expect("Drift Night Lamp" in report and "{{op:" not in report, "the report quotes its queries")

    def _ask_about_traffic(self) -> None:
        say("run-2: the next request of the same session. It cites the report of run-1.")
        question = "tell me more about traffic"
        report = self._one.run("send", self._session, "--ref", "run-1", question).stdout
        run = self._recorded("run-2")
        expect(run.status == "completed", f"run-2 is completed, not {run.status}")
        expect("run-1" in json.dumps(run.snapshot["references"]), "run-2 records that it refers to run-1")
        expect("report of run-1" in report, "the report of run-2 cites the report of run-1")

    def _cancel_the_export(self) -> None:
        say("run-3 exports the rows at risk, for which the warehouse takes a minute.")
        name = f"{self._session}/run-3"
        exporting = self._one.start("send", self._session, "check the stock risk and export the rows")
        events = self._watcher.until(name, export_started, "the export job had an id")
        remote_id = payloads(events, "tool.remote_id")[0]["remoteId"]

        say(f"The warehouse calls the job {remote_id}, which is on disk already. Now run-3 is stopped.")
        self._two.run("cancel", name, "--reason", "the wrong rows", exits={DONE, NOT_OVER})
        self._watcher.until(name, finished, "it was recorded as finished")
        self._one.finish(exporting, exits={CANCELLED})

        run = self._recorded("run-3")
        expect(run.status == "cancelled", f"run-3 is cancelled, not {run.status}")
        unresolved = json.dumps(run.snapshot["unresolvedOperations"])
        expect(run.operation_of("export_rows") in unresolved, f"the export is unresolved, not {unresolved}")
        expect(not (self._directory() / "runs/run-3/report.md").exists(), "a cancelled run has no report")

    def _look_at_what_is_left(self) -> None:
        say("The session. The export tool was killed; how its job ends, nobody here knows, and that is said.")
        self._one.run("show", self._session)
        self._one.run("show", f"{self._session}/run-3")
        directory = self._directory()
        say("The reports:")
        for report in sorted(directory.glob("runs/*/report.md")):
            print(f"{report.relative_to(directory)}: {report.read_text(encoding='utf-8').splitlines()[0]}")
        say(f"The tree, {directory}:")
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            print(path.relative_to(directory))

    def _say_what_to_try(self) -> None:
        directory = self._directory()
        say("All as told. To look further:")
        self._print_exports()
        print(f"agentrun show {self._session}/run-1")
        print(f"agentrun show {self._session}/run-3 --operations")
        print(f"jq -c '[.seq, .type, .payload.operationId]' {directory}/runs/run-1/operations.jsonl")
        print(f"cat {HERE}/exports/*.json   # what the warehouse knows about the export")

    def _recorded(self, run: str) -> RecordedRun:
        return RecordedRun(self._watcher.show(f"{self._session}/{run}"))

    def _directory(self) -> Path:
        account = str(self._watcher.show(self._session)["session"]["accountId"])
        return self.root / "accounts" / account / "sessions" / self._session


def second_queries_started(events: list[Event]) -> bool:
    """Whether both queries that follow the answer have started: sales for the second time, and stock."""
    started = {(call["operationId"], call["toolName"]) for call in payloads(events, "tool.started")}
    tools = [tool for _, tool in started]
    return tools.count("query_sales") > 1 and "query_stock" in tools


def export_started(events: list[Event]) -> bool:
    return bool(payloads(events, "tool.remote_id"))


def finished(events: list[Event]) -> bool:
    return bool(payloads(events, "run.finished"))


if __name__ == "__main__":
    sys.exit(main())
