"""An agent that reads and starts jobs outside, a model that keeps what it is told, and what one `recover` makes of it.

The jobs are those of `examples/export-service`: they run by themselves in the process of the test, which counts what
they did. The model is a plug-in that refuses a history in which a call has not exactly one result.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections import Counter
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from history import Run, messages_of, problems, runs_of
from rig import DONE, SESSION, Doc, Stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "export-service"
SEND = ("send", SESSION, "export")

# `look` is not made again by itself once it was lost, `look_again` is.
CONFIG = """
[agents.exporter]
model = "witness:m"
tools = ["look", "look_again", "export"]

[tools.look_again]
argv = ["sh", "-c", "cat >/dev/null; echo rows"]
effect = "read"
retries = 3

[tools.export]
argv = {start}
effect = "write"
approve = "auto"
retries = 2
resource = "export-service"
probe = {probe}
cancel = {cancel}
"""

# Two replies with calls, and a report that says what each of them came to. Each request is kept as it came.
WITNESS = """
import json, os
import agentrun

TURNS = (
    (("look", {}), ("export", {"name": "orders"}), ("look_again", {})),
    (("export", {"name": "stock"}), ("look", {"at": "both"})),
)

class Witness:
    name = "witness"

    def __init__(self, settings):
        pass

    async def complete(self, request, on_text):
        told, waiting = {}, []
        for message in request.messages:
            if message.role == "tool":
                if message.call_id not in waiting:
                    raise agentrun.ModelFailed(f"nobody waits for a result of {message.call_id}")
                waiting.remove(message.call_id)
                told[message.call_id] = message.text
            elif waiting:
                raise agentrun.ModelFailed(f"{waiting} have no result")
            else:
                waiting = [call.call_id for call in message.calls]
        if waiting:
            raise agentrun.ModelFailed(f"{waiting} have no result")
        with open(os.environ["WITNESS"], "a") as file:
            file.write(json.dumps(told) + "\\n")
        turn = len(request.replies)
        if turn == len(TURNS):
            text = json.dumps(told)
            await on_text(text)
            return agentrun.ModelReply(text)
        calls = [agentrun.ToolCall(f"call-{turn}-{i}", name, args) for i, (name, args) in enumerate(TURNS[turn])]
        return agentrun.ModelReply("Looking.", calls=tuple(calls))
"""


class Outside:
    """The export service, reached by the stage's tools. `begin` gives it a past in which nobody has asked it."""

    def __init__(self, stage: Stage) -> None:
        self._requests = stage.base / "requests"
        self._service = _loaded(EXAMPLE / "service.py")
        self._handler: Any = type("Handler", (self._service.Handler,), {"dropped": set()})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        site = _installed(stage.base / "site")
        stage.environment = {
            **stage.environment,
            "EXPORT_SERVICE": f"http://127.0.0.1:{self._server.server_port}",
            "WITNESS": str(self._requests),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
        }
        names = {"start": "start.py", "probe": "status.py", "cancel": "stop.py"}
        argv = {key: json.dumps([sys.executable, str(EXAMPLE / name)]) for key, name in names.items()}
        stage.config.write_text(stage.config.read_text() + CONFIG.format(**argv))
        self.begin()

    def begin(self) -> None:
        self._requests.unlink(missing_ok=True)
        self._handler.exports = self._service.Exports(seconds=0.0, hold=None)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def effects(self) -> list[str]:
        """The names of what was exported, each as often as it happened."""
        return list(self._handler.exports.effects()["effects"])

    def requests(self) -> list[dict[str, str]]:
        """What each request to the model said of the calls until then: their results by call id."""
        text = self._requests.read_text() if self._requests.exists() else ""
        # The process may have been killed over its last line.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def a_session(stage: Stage) -> None:
    assert stage.run("new", "--id", SESSION, "--agent", "exporter").code == DONE


def then_one_recover_settles_it(stage: Stage, outside: Outside) -> list[str]:
    """One `recover` brings the run to its end: each job done once or not at all, as the model and the user are told."""
    wrong = _problems(stage, settled=False)
    shown = stage.run("show", SESSION).lines()[0]["runs"]
    wrong += [f"shown as {run['status']}" for run in shown if run["status"] in ("running", "compacting")]
    done = stage.run("recover")
    if done.code != DONE:
        return [*wrong, f"recover: {done} {done.out}"]
    if not runs_of(stage.root, SESSION):
        stage.send("export")  # nothing was accepted
    elif stage.run("show", "-f", f"{SESSION}/run-1").code != DONE:
        return [*wrong, f"it did not complete: {stage.run('show', SESSION).out}"]
    wrong += _problems(stage, settled=True)
    for run in runs_of(stage.root, SESSION):
        wrong += _untrue(run, outside) + _not_reported(stage, run, outside)
    if list(stage.root.glob("accounts/*/resources/*")):
        wrong.append("the resource is still claimed")
    return wrong


def _problems(stage: Stage, *, settled: bool) -> list[str]:
    with stage.locked():
        return problems(stage.root, stage.ledger, settled=settled)


def _untrue(run: Run, outside: Outside) -> list[str]:
    """What the record, the model and the outside world do not agree about."""
    if run.status != "completed":
        return [f"{run.run_id} is {run.status}"]
    requests, effects = outside.requests(), Counter(outside.effects())
    wrong = [f"{name} was exported {times} times" for name, times in effects.items() if times > 1]
    told = requests[-1]
    for earlier in requests:
        wrong += [f"{call} was told in two ways" for call, text in earlier.items() if told[call] != text]
    for call in _calls(run):
        text, status = told.pop(call["toolCallId"]), run.operations[call["operationId"]].status
        export = call["arguments"].get("name")
        truth = f"{export}: 12 rows" if export else "rows"
        if status not in ("succeeded", "failed" if export else "cancelled"):
            wrong.append(f"{call['operationId']} ({call['toolName']}) is {status}")
        if call["toolName"] == "look_again" and status != "succeeded":
            wrong.append("a read with attempts left was not made again")
        if (status == "succeeded") != (text.rstrip("\n") == truth):
            wrong.append(f"{call['operationId']} {status}, and the model is told {text!r}")
        if export and effects[export] != (status == "succeeded"):
            wrong.append(f"{call['operationId']} {status}, and {export} was exported {effects[export]} times")
    return wrong + [f"the model is told of {call}, which is not recorded" for call in told]


def _not_reported(stage: Stage, run: Run, outside: Outside) -> list[str]:
    """The report is the model's last word, with a line for each call that gave no result; the conversation has it."""
    path = run.path / "report.md"
    if run.status != "completed" or not path.exists():
        return [f"{run.run_id} has no report"]
    report, said = path.read_text("utf-8"), json.dumps(outside.requests()[-1])
    wrong = [] if report.startswith(said) else [f"the report is {report!r}, the model said {said!r}"]
    for name, operation in run.operations.items():
        is_gap = operation.effect is not None and operation.status != "succeeded"
        if is_gap != (f"\n* {name} " in report):
            wrong.append(f"{name} {operation.status}, and the gaps of the report are {report[len(said) :]!r}")
    texts = [each["text"] for each in messages_of(stage.root, SESSION) if each["mode"] == "report"]
    return wrong if texts == [report] else [*wrong, f"the conversation has the reports {texts}"]


def _calls(run: Run) -> list[Doc]:
    return [event["payload"] for event in run.events if event["type"] == "tool.registered"]


def _installed(site: Path) -> Path:
    """A directory with the model as an installed plug-in."""
    info = site / "witness-1.dist-info"
    info.mkdir(parents=True)
    (site / "witness.py").write_text(WITNESS)
    (info / "entry_points.txt").write_text("[agentrun.models]\nwitness = witness:Witness\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: witness\nVersion: 1\n")
    return site


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
