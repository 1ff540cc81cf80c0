"""Names that are no names, in every argument that takes one and in every stored field that holds one.

The commands are called in one process, which takes down each path that it hands to the system: a name that is refused
is never a part of one. What such a name would lead to lies there, and is a session.

# covers A27; promise 14; case C21
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.cli import chosen
from agentrun.cli.chosen import command_for
from agentrun.cli.command_line import run
from agentrun.store.tree import Tree
from agentrun.testing import trees
from tests.cli.test_wrong_types import Case, Sample, paths_in
from tests.cli.test_wrong_types import commands as commands_about
from tests.test_ids import HOSTILE

Home = Any

pytestmark = pytest.mark.slow

MEMORY = "/dev/shm"
SECRET = "the figures of somebody else"
# % is the name, of a session, a run or an operation.
ARGUMENTS = """
show % | show %/run-1 | show s1/% | show % --messages | show s1/% --operations | show % --timeline | show -f % | wait %
wait s1/% | send % x --detach | send s1/% x --detach | send s1 x --ref=% --detach | send % x --key=k --mode=steer
steer % x | steer s1/% x | approve % | approve s1/% | deny % | cancel % | cancel s1/% | cancel s1 --op=%
cancel % --wait | resume % --detach | reconcile % | reconcile s1/% op-2 --as=failed | compact % --detach | rename % x
archive % | unarchive % | fork % | rm % --yes
export % | export s1/% | export % --format=archive | check % | check % --repair
search x --session=% | new --id=% | import talk.tar --as=% | ls --account=% | new --account=% | show s1 --account=%
"""
# Where a name would lead that is taken for a path: out of the session, out of the account, out of the root.
LEADING = ("../bait", "{beside}/bait", "../../../../bait", "..")
# The fields that hold such a name, or a list of them.
NAMES = {
    "sessionId", "runId", "operationId", "sha256", "references", "behind", "operationIds", "continues", "questionId",
    "unresolvedOperations", "remoteIds", "accountId", "run", "name",
}  # fmt: skip

# Runs the command lines of a file; of each it prints the code, what it said, and the paths that it used.
DRIVER = """
import contextlib, io, json, os, sys
from agentrun.cli import chosen
from agentrun.cli.chosen import command_for
from agentrun.cli.command_line import run
used = []
def take_down(event, arguments):
    if event == "open" or event.startswith("os."):
        used.extend(os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes)))
sys.addaudithook(take_down)
told = open(sys.argv[2], "w")
for line in open(sys.argv[1]):
    said = io.TextIOWrapper(io.BytesIO(), write_through=True)
    used.clear()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(json.loads(line))
    told.write(json.dumps([code, said.buffer.getvalue().decode(errors="replace"), used]) + "\\n")
told.close()
"""


def _lines(name: str) -> Iterator[list[str]]:
    for line in ARGUMENTS.strip().replace("\n", " | ").split(" | "):
        yield [word.replace("%", name) for word in line.split()]


@pytest.fixture
def beset(home: Home) -> Home:
    """A home with the session `s1`, and sessions wherever a name that is taken for a path would lead."""
    tree = Tree(str(home.root), getpass.getuser())
    trees.completed(tree.create_session(title="mine", session_id="s1"))
    assert home.run("export", "s1", "--output", str(home.path / "talk.tar")).code == 0
    bait = tree.create_session(title=SECRET, session_id="bait")
    trees.completed(bait, SECRET)
    account = home.sessions.parent
    for place in (account, home.root / "accounts", home.root, home.path, home.sessions / "s1"):
        shutil.copytree(bait.directory.path, place / "bait")
    shutil.rmtree(bait.directory.path)
    return home


def _refuse(home: Home, pairs: list[tuple[str, list[str]]]) -> list[str]:
    """Each command line is refused, and leads nowhere; what is wrong."""
    lines, told = home.path / "lines", home.path / "told"
    lines.write_text("".join(json.dumps(argv) + "\n" for _, argv in pairs))
    before = trees.fingerprint(home.root)
    argv = [sys.executable, "-c", DRIVER, str(lines), str(told)]
    subprocess.run(argv, env=home.env, cwd=home.path, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    wrong = []
    for (name, argv), line in zip(pairs, told.read_text().splitlines(), strict=True):
        code, said, used = json.loads(line)
        parts = {part for path in used for part in path.split("/")}
        if code not in (2, 8, 9) or SECRET in said or "Traceback" in said:
            wrong.append(f"{argv}: {code} {said[:300]}")
        # Dots and nothing are parts of honest paths; no honest one has the rest.
        if "bait" in parts or (name.strip("./") and name in parts):
            wrong.append(f"{argv} has used {used}")
    if trees.fingerprint(home.root) != before:
        wrong.append("something was written")
    return wrong


# One of them asks for help, as a word of its own.
TAKEN = [name for name in HOSTILE if len(name) < 1000 and name != "--help"]


def test_no_argument_takes_one(beset: Home) -> None:
    """Each argument with some of them, each of them in some arguments."""
    pairs = [(name, argv) for number, name in enumerate(TAKEN) for argv in list(_lines(name))[number % 8 :: 8]]
    assert _refuse(beset, pairs) == []


@pytest.mark.exhaustive
def test_no_argument_takes_any(beset: Home) -> None:
    assert len(TAKEN) >= 40
    assert _refuse(beset, [(name, argv) for name in TAKEN for argv in _lines(name)]) == []


def _stored(sample: Sample) -> Iterator[Case]:
    """Each stored field that holds a name, once in each kind of document, with a name that leads elsewhere."""
    seen = set()
    for path in sorted(sample.kept.rglob("*.json*")):
        name = str(path.relative_to(sample.kept))
        for line, doc in sample.docs(name):
            for field in paths_in(doc):
                about = path.name, doc.get("type") or doc.get("mode"), field
                words = [each for each in field if isinstance(each, str)]
                if about not in seen and words[-1] in NAMES:
                    seen.add(about)
                    leading = LEADING[len(seen) % len(LEADING)]
                    yield Case(name, line, field, leading.format(beside=sample.root.parent))


_used: list[str] | None = None


def _take_down(event: str, arguments: tuple[Any, ...]) -> None:
    if _used is not None and (event == "open" or event.startswith("os.")):
        _used.extend(os.fsdecode(each) for each in arguments if isinstance(each, str | bytes))


@pytest.fixture(scope="module")
def hook() -> None:
    """An audit hook stays as long as its process: there is one, and it looks only while something is to be seen."""
    sys.addaudithook(_take_down)


@contextmanager
def _taken_down() -> Iterator[list[str]]:
    """The paths that this process hands to the system meanwhile."""
    global _used
    _used = []
    try:
        yield _used
    finally:
        _used = None


def _lead_nowhere(sample: Sample, cases: list[Case], capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Whatever a command makes of such a field, it uses no path with it, and says nothing of what lies there."""
    wrong = []
    for place in (sample.root.parent, sample.root, sample.root / "accounts", sample.sessions.parent):
        shutil.copytree(sample.kept / "over", place / "bait")
        session = place / "bait" / "session.json"
        session.write_text(session.read_text().replace('"t"', json.dumps(SECRET)))
    before = {path: trees.fingerprint(path) for path in sample.root.parent.rglob("bait")}
    for case in cases:
        sample.break_it(case)
        # To take a run up takes its time, and begins with what a dry run finds.
        for words in (each for each in commands_about(case) if each != ["recover"]):
            with _taken_down() as used:
                code = run(words)
            said = "".join(capfd.readouterr())
            parts = {part for path in used for part in path.split("/")}
            if code == 70 or SECRET in said or "Traceback" in said:
                wrong.append(f"{case}: {words}: {code} {said[-300:]}")
            if parts & {"bait", ".."}:
                wrong.append(f"{case}: {words} has used {used}")
    after = {path: trees.fingerprint(path) for path in before}
    return wrong + [f"{path} has changed" for path in before if after[path] != before[path]]


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: None) -> Iterator[Sample]:
    # Thousands of commands wait for no disk here where there is room in memory.
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path) as place:
        yield _sample(Path(place), monkeypatch)


def _sample(place: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    sample = Sample(place)
    monkeypatch.setenv("AGENTRUN_ROOT", str(sample.root))
    monkeypatch.setenv("AGENTRUN_CONFIG", sample.config)
    made = functools.cache(lambda word: command_for([word]))
    monkeypatch.setattr(chosen, "command_for", lambda words: made(words[0]))
    return sample


def test_no_stored_field_leads_anywhere(sample: Sample, capfd: pytest.CaptureFixture[str]) -> None:
    assert _lead_nowhere(sample, list(_stored(sample))[::13], capfd) == []


@pytest.mark.exhaustive
def test_none_of_all_stored_fields_leads_anywhere(sample: Sample, capfd: pytest.CaptureFixture[str]) -> None:
    cases = list(_stored(sample))
    assert len(cases) > 90
    assert _lead_nowhere(sample, cases, capfd) == []
