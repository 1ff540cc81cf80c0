"""Holds README.md and docs/ to what the code does: generated parts, names, links, and everything that can be typed.

A fenced block says by its first line what it is:

    ```sh run            run with bash, all such blocks of a page one after the other
    ```LANGUAGE file=F   written as F before that, where the blocks run
    ```sh look           each line by itself, in the directory of a session; it has to print something
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from agentrun.cli.app import app
from agentrun.errors import EXIT_CODES
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from tests.cli.conftest import is_gone, until

ROOT = Path(__file__).resolve().parent.parent
README, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
PAGES = [
    README,
    CHINESE,
    ROOT / "SECURITY.md",
    ROOT / "examples/shell/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FORMAT = ROOT / "docs" / "format.md"
LIFECYCLE = ROOT / "docs" / "lifecycle.md"

Doc = dict[str, Any]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")


def load_tool() -> Any:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools" / "make_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_docs = load_tool()


# What is generated.


@each_page
def test_the_generated_parts_are_what_the_code_says(page: Path) -> None:
    # covers B14 B20
    _, stale = make_docs.refreshed(page.read_text(encoding="utf-8"))
    assert stale == [], f"{page.name} is out of date; refresh it with: {make_docs.REFRESH}"


def test_every_part_has_a_place() -> None:
    placed = re.findall(r"<!-- generated: (\S+) -->", "\n".join(page.read_text(encoding="utf-8") for page in PAGES))
    assert sorted(placed) == sorted(make_docs.PARTS)


class Copy(NamedTuple):
    """A copy of the docs that may be spoiled."""

    page: Path

    def spoil(self, old: str, new: str) -> None:
        text = self.page.read_text(encoding="utf-8")
        assert old in text
        self.page.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("README.md", *make_docs.WHOLE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(make_docs, "ROOT", tmp_path)
    return Copy(tmp_path / "docs" / "lifecycle.md")


def test_a_stale_page_is_named_with_how_to_refresh_it(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_docs.main(["--check"]) == 0
    good = copy.page.read_text(encoding="utf-8")
    copy.spoil("| `queued` | `run.started` | `running` |", "| `queued` | `run.started` | `completed` |")
    assert make_docs.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "docs/lifecycle.md: the part 'transitions' is out of date; refresh it with: make docs" in said

    words = make_docs.ROOT / "agentrun/cli/words.py"
    words.unlink()
    assert make_docs.main(["--check"]) == 1
    assert "agentrun/cli/words.py is out of date; refresh it with: make docs" in capsys.readouterr().err

    assert make_docs.main([]) == 0
    assert words.exists()
    assert copy.page.read_text(encoding="utf-8") == good


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<!-- generated: transitions -->", "<!-- generated: transitoins -->", "no part 'transitoins'"),
        ("<!-- end -->\n\n### Facts", "\n\n### Facts", "no `<!-- end -->`"),
        ("<!-- generated: routing -->", "", "no page has a place for the part 'routing'"),
    ],
)
def test_a_marker_that_cannot_be_used_is_an_error(
    copy: Copy, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy.spoil(old, new)
    assert make_docs.main(["--check"]) == 1
    assert said in capsys.readouterr().err


def test_every_word_of_the_tables_is_in_them() -> None:
    parts = {name: make() for name, make in make_docs.PARTS.items()}
    for status in RunStatus:
        assert f"`{status.value}`" in parts["transitions"]
        assert status.value in parts["run-diagram"]
    for operation_status in OperationStatus:
        assert f"| `{operation_status.value}` |" in parts["operations"]
    for word, code in EXIT_CODES.items():
        assert f"| {code} | `{word}` |" in parts["exit-codes"]
    for event in EventType:
        assert f"`{event.value}`" in parts["transitions"] + parts["facts"]


def test_every_command_has_its_exit_codes() -> None:
    below = (
        (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8").partition("What the codes mean for each command:")[2]
    )
    told = {name for cell in re.findall(r"^\| (`.*?`) \|", below, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}
    assert set(tree_of_commands().commands) - told == set()


# Names.


def words_in_code(page: Path) -> set[str]:
    """Every word that stands between backticks."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {word.rstrip("?") for span in re.findall(r"`([^`\n]+)`", text) for word in re.split(r"[\s{}\[\]:,]+", span)}


@pytest.mark.parametrize("event", EventType)
def test_every_event_is_on_the_page_of_the_format(event: EventType) -> None:
    assert event.value in words_in_code(FORMAT)


def test_every_field_of_a_run_is_on_the_page_of_the_format() -> None:
    run = Run("session-1", "run-1", "ann", RunStatus.QUEUED)
    operation = Operation("op-1", "tool", "export")
    fields = {*run.to_doc(), *run.usage, *operation.brief()}
    assert fields - words_in_code(FORMAT) == set()


# The Chinese page: in step with the other one.


def fenced(page: Path) -> list[str]:
    return re.findall(r"^```.*?^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_chinese_page_has_the_same_commands_and_examples() -> None:
    assert fenced(CHINESE) == fenced(README)
    indented = [re.findall(r"^    .*$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in (README, CHINESE)]
    assert [line.partition("#")[0].rstrip() for line in indented[1]][:2] == ["    make demo", "    make test"]
    assert indented[0][2:] == indented[1][2:]
    table = r"^\| (`agentrun .*?`) \|"
    both = [re.findall(table, page.read_text(encoding="utf-8"), re.MULTILINE) for page in (README, CHINESE)]
    assert both[0] == both[1]
    links = [sorted(set(_LINK.findall(page.read_text(encoding="utf-8")))) for page in (README, CHINESE)]
    assert [link for link in links[0] if link != "README.zh.md"] == [link for link in links[1] if link != "README.md"]
    levels = [re.findall(r"^(#+) ", page.read_text(encoding="utf-8"), re.MULTILINE) for page in (README, CHINESE)]
    assert levels[0] == levels[1]


# Commands.

_COMMON = {"--root": 1, "--config": 1, "--account": 1, "--json": 0, "--no-color": 0, "--help": 0, "-h": 0}
_PROMPT = re.compile(r"^\s*(?:terminal \d+ )?(?:\$ )?(?=agentrun )")


def command_lines(page: Path) -> list[str]:
    """The command lines of agentrun in code blocks, and those between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    .*$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    lines = [line for block in [*fenced, "\n".join(indented)] for line in block.splitlines()]
    found = [_PROMPT.sub("", line) for line in lines if _PROMPT.match(line)]
    outside = re.sub(r"^(```.*?^```|    .*?$)", "", text, flags=re.DOTALL | re.MULTILINE)
    return found + [span for span in re.findall(r"`([^`\n]+)`", outside) if span.startswith("agentrun ")]


@functools.cache
def tree_of_commands() -> Any:
    """Which typer makes anew each time, and a page has a hundred lines to hold against it."""
    return typer.main.get_command(app)


def faults_of(line: str) -> list[str]:
    """What is wrong with a command line, by the tree of commands."""
    words = shlex.split(re.split(r" (?:\|\||&&|\|) ", line)[0], comments=True)[1:]
    commands = tree_of_commands()
    if not words or words[0].startswith("-") or words[0].isupper():
        return []  # `agentrun --help`, `agentrun COMMAND`
    if words[0] not in commands.commands:
        return [f"there is no command {words[0]}"]
    known = {name for each in commands.commands[words[0]].params for name in each.opts} | set(_COMMON)
    return [f"{words[0]} has no option {word}" for word in words if re.match(r"--?[a-z]", word) and word not in known]


@each_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    faults = {line: faults_of(line) for line in command_lines(page)}
    assert {line: fault for line, fault in faults.items() if fault} == {}


def test_commands_are_found_and_faults_too() -> None:
    assert len(command_lines(ROOT / "README.md")) > 10
    assert faults_of("agentrun send x 'a -- b' --detach --root R") == []
    assert faults_of("agentrun teleport x") == ["there is no command teleport"]
    assert faults_of("agentrun show x --sideways | head") == ["show has no option --sideways"]


# Links.

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not link.startswith(("http:", "https:")) and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            broken.append(link)
    assert broken == []


# Everything that can be typed.


class Shell:
    """A bash in a directory of its own, in which `agentrun` is the one that is tested."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        programs = directory / ".bin"
        programs.mkdir()
        (programs / "agentrun").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m agentrun "$@"\n')
        (programs / "agentrun").chmod(0o755)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN_", "XDG_"))}
        self._environment = inherited | {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(directory)}

    def run(self, script: str, *, cwd: Path | None = None) -> str:
        """What the script prints on standard output. Fails the test if it ends with anything but 0."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=cwd or self.directory, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=170, check=False,
        )  # fmt: skip
        said = done.stdout.decode()
        assert done.returncode == 0, f"{script}\n{said}\n{done.stderr.decode()}"
        return said


def blocks(page: Path, info: str) -> list[re.Match[str]]:
    fence = rf"^```{info}\n(?P<text>.*?)^```$"
    return list(re.finditer(fence, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


PRINTED = {
    "README.md": ["session-", "There are 7", "cancelled", "executor lost", "this is attempt 2", "There are 12"],
    "agents.md": [
        "Lamps: 12",
        "1 retry",
        "may book be called",
        "# booked",
        "only the north, then.",
        "said something new",
    ],
    "getting-started.md": ["# Twelve lamps: ordered", "# Noted", "lamps, ordered", "result: 3 lamps"],
    "scripting.md": [
        "you said: from a pipe",
        "you said: summarise:\nyou said: what it is about",
        "you said: take your time",
        "you said: sales in south",
        "\n1\n",
        "accepted\ncompleted\n",
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "sh run") and page != CHINESE], ids=lambda page: page.name
)
def test_the_snippets_run(page: Path, tmp_path: Path) -> None:
    if "jq " in "".join(block["text"] for block in blocks(page, "sh run")) and not shutil.which("jq"):
        pytest.skip("needs jq: apt-get install jq")
    try:
        assert missing_of(page, tmp_path / "first") == []
    except AssertionError:
        if not _PAUSE.search(page.read_text(encoding="utf-8")):
            raise
        # The reader steers a model that is at its reply; this machine may be slower than that.
        assert missing_of(page, tmp_path / "second", slower=20) == []


_PAUSE = re.compile(r'(?<="delayMs": )\d+')


def missing_of(page: Path, directory: Path, slower: int = 1) -> list[str]:
    """What the blocks of a page do not print of what they should. Models take so many times as long as on the page."""
    directory.mkdir()
    shell = Shell(directory)
    for block in blocks(page, r"\w+ file=(?P<name>\S+)"):
        text = _PAUSE.sub(lambda pause: str(int(pause[0]) * slower), block["text"])
        (directory / block["name"]).write_text(text, encoding="utf-8")
    printed = shell.run("\n".join(block["text"] for block in blocks(page, "sh run"))).casefold()
    return [words for words in PRINTED[page.name] if words.casefold() not in printed]


# The page of the format, against a real tree.

CONFIG = """
default_agent = "a"

[agents.a]
model = "scripted:s.json"
tools = ["late", "big", "write", "slow", "slower", "slowest"]
timeout = "1h"
answer_timeout = "1h"

[tools.late]
argv = ["sh", "-c", "test -e $AGENTRUN_SCRATCH/x || { touch $AGENTRUN_SCRATCH/x; echo not yet >&2; exit 75; }; echo ok"]
effect = "read"
retries = 1

[tools.big]
argv = ["sh", "-c", "head -c 40000 /dev/zero | tr '\\\\0' x; echo nonsense >&3"]
effect = "read"

[tools.write]
argv = ["sh", "-c", "echo done"]

[tools.slow]
argv = ["sh", "-c", "echo '{\\"remoteId\\": \\"job-7\\"}' >&3; sleep 60"]
approve = "auto"
resource = "table"
grace = "0s"

[tools.slower]
argv = ["sh", "-c", "echo '{\\"remoteId\\": \\"job-8\\"}' >&3; sleep 60"]
approve = "auto"
resource = "the other table"
grace = "0s"

[tools.slowest]
argv = ["sh", "-c", "echo '{\\"remoteId\\": \\"job-9\\"}' >&3; sleep 60"]
approve = "auto"
grace = "0s"
"""

SCRIPT: Doc = {
    "turns": [
        {"ifContains": "all of it", "text": "I look.", "calls": [{"name": name} for name in ("late", "big", "write")]},
        {"ifContains": "all of it", "ask": "Which one?"},
        {"ifContains": "the blue one", "text": "# Blue\n\n{{op:late}}"},
        {"ifContains": "slowest", "calls": [{"name": "slowest"}]},
        {"ifContains": "slower", "calls": [{"name": "slower"}]},
        {"ifContains": "slow", "calls": [{"name": "slow"}]},
        {"ifContains": "Summarise", "text": "They looked for a blue one."},
    ]
}

# run-1 has everything and completes, run-2 fails; run-3 is cancelled, run-4 after kill -9; run-5 summarises; run-6 goes
STORY = """
export AGENTRUN_ROOT=$PWD
agentrun new "a session" --id look >&2
look=$(echo accounts/*/sessions/look)
agentrun send look "all of it" --key k-1 --attach agentrun.toml >&2 || test $? = 5
agentrun approve look --note "go on" >&2
agentrun show -f look >&2 || test $? = 5
agentrun steer look "not the red one" >&2
agentrun send look "and in time" --mode follow-up --detach >&2
agentrun send look "the blue one" >&2
agentrun send look "nothing fits this" >&2 || test $? = 1
agentrun send look "slow" --detach >&2
until grep -q remote_id $look/runs/run-3/operations.jsonl; do sleep 0.02; done
agentrun cancel look --wait >&2
agentrun send look "slower" --detach >&2
until grep -q remote_id $look/runs/run-4/operations.jsonl; do sleep 0.02; done
echo $look
"""
GOES_ON = """
export AGENTRUN_ROOT=$PWD
agentrun cancel look >&2
agentrun compact look >&2
agentrun send look "slowest, again" --ref run-1 --detach >&2
until grep -q remote_id accounts/*/sessions/look/runs/run-6/operations.jsonl; do sleep 0.02; done
"""


class Looked(NamedTuple):
    """A session with six runs, of which the last goes on."""

    shell: Shell
    directory: Path

    def documents(self, pattern: str) -> Iterator[Doc]:
        # What is hidden is about to be put in the place of one that is not.
        for path in sorted(path for path in self.directory.glob(pattern) if not path.name.startswith(".")):
            text = path.read_text(encoding="utf-8")
            yield from map(json.loads, text.split("\n")[:-1] if path.suffix == ".jsonl" else [text])


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    root = tmp_path_factory.mktemp("looked")
    (root / "agentrun.toml").write_text(CONFIG, encoding="utf-8")
    (root / "s.json").write_text(json.dumps(SCRIPT), encoding="utf-8")
    shell = Shell(root)
    directory = root / shell.run(STORY).strip()
    kill(json.loads((directory / "runs/run-4/lease.json").read_text())["owner"]["pid"])
    shell.run(GOES_ON)
    yield Looked(shell, directory)
    shell.run("AGENTRUN_ROOT=$PWD agentrun cancel look --wait")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid), "the end of the executor")


@pytest.mark.slow
@needs_jq
def test_every_look_prints_something(looked: Looked) -> None:
    lines = [line for block in blocks(FORMAT, "sh look") for line in block["text"].splitlines()]
    assert len(lines) > 20
    # covers A19 A71 B12
    silent = [line for line in lines if not looked.shell.run(line, cwd=looked.directory).strip()]
    assert silent == []


@pytest.mark.slow
def test_every_field_that_is_written_is_on_the_page(looked: Looked) -> None:
    known = words_in_code(FORMAT)
    messages, events = list(looked.documents("messages.jsonl")), list(looked.documents("runs/*/operations.jsonl"))
    documents = [*looked.documents("*.json"), *looked.documents("runs/*/*.json"), *messages, *events]
    documents += [message["accept"] for message in messages if "accept" in message]
    documents += [event["payload"] for event in events]
    assert len({event["type"] for event in events}) > 15
    assert {name for document in documents for name in document} - known == set()
    assert {(message["role"], message["mode"]) for message in messages} == set(modes_on_page())


def modes_on_page() -> list[tuple[str, str]]:
    found = re.findall(
        r"^\| `(user|assistant|system)` \| `([a-z-]+)` \|", FORMAT.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [(role, mode) for role, mode in found]


@pytest.mark.slow
def test_a_program_that_knows_only_the_pages_folds_the_same_runs(looked: Looked) -> None:
    # covers B13 B63
    for directory in sorted(looked.directory.glob("runs/*")):
        snapshot = json.loads((directory / "run.json").read_text(encoding="utf-8"))
        events = [json.loads(line) for line in (directory / "operations.jsonl").read_bytes().split(b"\n")[:-1]]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        known = [event for event in events if event["seq"] <= snapshot["appliedSeq"]]
        assert Fold().of(known) == snapshot


def table_after(heading: str) -> Iterator[list[list[str]]]:
    """The rows of the first table after a heading of the page on the life of a run, as the words in backticks."""
    below = LIFECYCLE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    table = re.search(r"(?:^\|.*\|\n)+", below, re.MULTILINE)
    assert table
    rows = [row.strip("|").split("|") for row in table[0].splitlines()[2:]]
    return ([re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows)


class Fold:
    """Written from docs/format.md and docs/lifecycle.md alone, without a line of agentrun's."""

    def __init__(self) -> None:
        self.moves = {(row[0][0], row[1][0]): row[2] for row in table_after("### The table") if row[0] and row[1]}
        self.operation_moves = {row[0][0]: row[1] for row in table_after("## Operations") if row[0]}
        self.ends = {row[0][0]: row[1][0] for row in table_after("### Intents")}
        self.operations: dict[str, Doc] = {}
        self.run: Doc = {}

    def of(self, events: list[Doc]) -> Doc:
        self._accept(events[0])
        for event in events[1:]:
            status = self.run["status"]
            targets = self.moves.get((status, event["type"]))
            if targets:
                self.run["status"] = event["payload"].get("terminalStatus", targets[0])
            self._change(event)
            self.run |= {"updatedAt": event["at"], "appliedSeq": event["seq"]}
            self.run["generation"] = max(self.run["generation"], event["generation"])
        is_open = [each for each in self.operations.values() if each["status"] in ("pending", "running")]
        unresolved = [each for each in self.operations.values() if self._is_unresolved(each)]
        briefs = [
            [{k: v for k, v in each.items() if k != "settled"} for each in some] for some in (is_open, unresolved)
        ]
        return self.run | {"openOperations": briefs[0], "unresolvedOperations": briefs[1]}

    def _accept(self, event: Doc) -> None:
        copied = ["accountId", "inputMode", "agent", "messageSeq", "references", "continues", "parentRun", "config"]
        copied += ["timeout"]
        nothing = ["startedAt", "timeoutAt", "cancelRequestedAt", "ending", "terminalStatus", "terminalAt", "reason"]
        nothing += ["leaseOwner"]
        nothing += ["leaseExpiresAt", "waitingFor", "report"]
        counts = ["turns", "modelRequests", "toolCalls", "checks", "retries", "executingMs"]
        self.run = {name: event["payload"][name] for name in copied} | dict.fromkeys(nothing)
        self.run |= {"formatVersion": 1, "runId": event["runId"], "sessionId": event["sessionId"], "status": "queued"}
        self.run |= {
            "generation": 0,
            "createdAt": event["at"],
            "updatedAt": event["at"],
            "attempts": 0,
            "force": False,
            "fenced": None,
        }
        self.run["children"] = []
        self.run |= {"deliveredInputs": [], "returnedInputs": [], "survivors": [], "appliedSeq": 1}
        self.run["usage"] = dict.fromkeys(counts, 0) | {"inputTokens": None, "outputTokens": None, "costUsd": None}

    def _change(self, event: Doc) -> None:
        payload, run, usage = event["payload"], self.run, self.run["usage"]
        usage["executingMs"] += payload.get("executingMs", 0)
        match event["type"]:
            case "run.lease_acquired":
                run |= {"leaseOwner": payload["owner"], "leaseExpiresAt": payload["expiresAt"]}
                run["fenced"] = payload.get("fenced")
                run["attempts"] = payload["attempt"]
            case "run.lease_released":
                run |= {"leaseOwner": None, "leaseExpiresAt": None}
            case "run.started":
                run |= {"startedAt": run["startedAt"] or event["at"], "timeoutAt": payload["timeoutAt"]}
            case "input.delivered":
                run["deliveredInputs"] += payload["messageSeqs"]
            case "run.waiting_input":
                run |= {"waitingFor": payload, "timeoutAt": None}
            case "run.input_received":
                if run["waitingFor"]["kind"] == "approval":
                    run["deliveredInputs"].append(payload["messageSeq"])
                run |= {"waitingFor": None, "timeoutAt": payload["timeoutAt"]}
            case "run.cancel_requested" | "run.failing" if run["ending"] is None:
                run["force"] = payload.get("force", False)
                run |= {"ending": self.ends[payload.get("intent", "failure")], "cancelRequestedAt": event["at"]}
                run |= {"reason": payload["reason"], "waitingFor": None}
            case "run.finished":
                run |= {"terminalStatus": payload["terminalStatus"], "terminalAt": event["at"]}
                run |= {name: payload[name] for name in ("reason", "report", "returnedInputs")}
                run |= {"waitingFor": None, "leaseOwner": None, "leaseExpiresAt": None}
            case "run.compacted":
                pass
            case _ if "operationId" in payload:
                self._count(event["type"], payload)
                self._operate(event, payload)
            case _:
                pass

    def _count(self, kind: str, payload: Doc) -> None:
        usage = self.run["usage"]
        again = payload.get("attempt", 1) > 1
        if kind in ("model.request.started", "tool.started"):
            is_summary = self.run["status"] == "compacting"
            if again or not is_summary:
                usage["retries" if again else "turns" if kind.startswith("model") else "toolCalls"] += 1
            usage["modelRequests"] += kind.startswith("model")
        if kind == "model.request.finished":
            for name, number in (payload["usage"] or {}).items():
                usage[name] = (usage[name] or 0) + number

    def _operate(self, event: Doc, payload: Doc) -> None:
        operation = self.operations.pop(payload["operationId"], None) or self._new(event, payload)
        self.operations[payload["operationId"]] = operation
        match event["type"]:
            case "tool.started":
                self._move(operation, "running", attempt=payload["attempt"])
                operation["startedAt"] = operation["startedAt"] or event["at"]
            case "tool.remote_id":
                operation["remoteId"] = payload["remoteId"]
            case "tool.finished" | "model.request.finished" if payload.get("willRetry"):
                self._move(operation, "pending", error=payload.get("error"))
            case "tool.finished" | "model.request.finished":
                effects = payload.get("mayHaveEffects", False)
                ended = {"finishedAt": event["at"], "error": payload.get("error"), "mayHaveEffects": effects}
                self._move(operation, payload["status"], **ended)
            case "operation.reconciled":
                operation["finishedAt"] = operation["finishedAt"] or event["at"]
                if operation["status"] in ("pending", "running"):
                    operation |= {name: payload[name] for name in ("error", "mayHaveEffects")}
                operation |= {"status": payload["status"], "settled": payload["status"] != "unknown"}
            case _:
                pass

    def _move(self, operation: Doc, status: str, **changes: Any) -> None:
        if status == operation["status"] or status in self.operation_moves[operation["status"]]:
            operation |= {"status": status} | changes

    def _new(self, event: Doc, payload: Doc) -> Doc:
        is_tool = event["type"] == "tool.registered"
        began = {"registeredAt": event["at"], "startedAt": None if is_tool else event["at"], "finishedAt": None}
        names = ("effect", "resource", "idempotencyKey")
        return {
            "operationId": payload["operationId"],
            "kind": "tool" if is_tool else "model",
            "name": payload["toolName" if is_tool else "model"],
            "turnId": payload["turnId"],
            "status": "pending" if is_tool else "running",
            "attempt": 0 if is_tool else payload["attempt"],
            **{name: payload.get(name) for name in names},
            "remoteId": None,
            "cancelRequestedAt": None,
            "mayHaveEffects": False,
            "error": None,
            "settled": False,
            **began,
        }

    def _is_unresolved(self, operation: Doc) -> bool:
        has_ended = operation["status"] not in ("pending", "running")
        unsure = operation["effect"] == "write" and operation["mayHaveEffects"] and not operation["settled"]
        return operation["status"] == "unknown" or (has_ended and unsure)
