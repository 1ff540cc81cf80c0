"""What is put into the place of something between the look at it and its use is not followed either.

A process does something with a session. At the first moment at which it hands a path to the system, at the second one,
and so on, a directory or a file of the session is taken away, and a link to one of another place, where everything has
the same names, is put there. That place stays as it is, and nothing of it is told.

# covers A24; promise 14; case C21
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Where the links are put: every directory on the way to the files, and the files themselves.
PLACES = (
    "", "runs", "runs/run-1", "runs/run-2", "keys", "messages.jsonl", "session.json", "active", "runs/run-1/run.json",
    "runs/run-1/operations.jsonl", "runs/run-1/report.md", "runs/run-1/blobs", "runs/run-1/scratch",
    "runs/run-1/scratch/made",
)  # fmt: skip
MEMORY = "/dev/shm"
SECRET = "what lies in the other place"

# An audit hook is called right before each call that takes a path, and is what comes between.
SWAP = """
import json, os, shutil, sys
from agentrun.commands import sessions
from agentrun.errors import AgentrunError
from agentrun.store.check import check_session
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from agentrun.testing import trees

base, deed, place, first, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
tree, other = Tree(base + "/root", "ann"), Tree(base + "/other", "ann")
for each, said in (tree, "go"), (other, "SECRET"):
    session = each.create_session(title=said, session_id="s1")
    trees.completed(session, said, said)
    trees.accept(session, said, key="k1")
    os.makedirs(session.directory.path + "/runs/run-1/scratch/made/below")
ours, theirs = tree.path_of("s1"), other.path_of("s1")
for directory, _, _ in os.walk(theirs):
    os.chmod(directory, 0o711)  # a change of that shows as well
shutil.copytree(ours, base + "/kept")
target, bait = os.path.join(ours, place).rstrip("/"), os.path.join(theirs, place).rstrip("/")
left = None

def swap(event, arguments):
    global left
    if left is None or not (event == "open" or event.startswith("os.")) or event == "os.listdir":
        return
    left -= 1
    if left < 0:
        left = None
        # What is removed has another name first.
        for each in (target, target.replace(ours, ours[:-2] + ".gone-s1-1")):
            if os.path.lexists(each):
                os.rename(each, base + "/moved")
                os.symlink(bait, each)

sys.addaudithook(swap)
said = []

def look():
    session = tree.session("s1")
    said.append(session.read().title)
    said.extend(message.text for message in session.tail(9))
    for run_id in ("run-1", "run-2"):
        said.append(session.run(run_id).view().run.status)
        said.extend(json.dumps(event.payload) for event in session.run(run_id).all_events())
        said.extend([session.run(run_id).report(), session.run(run_id).draft()])

def write():
    session = tree.session("s1")
    executor = trees.Executor(session, "run-2")
    executor.deliver()
    executor.ask_model()
    executor.write_draft("so far")
    executor.complete()
    trees.accept(session, "next", key="k2")

DEEDS = {
    "look": look,
    "write": write,
    "stop": lambda: trees.cancel(tree.session("s1"), "run-2"),
    "repair": lambda: said.extend(each.said for each in check_session(tree, "s1", repair=True)),
    "remove": lambda: tree.remove_session(writing(tree.session("s1")).__enter__()) or tree.finish_removals(),
}
before, bad, count = trees.fingerprint(base + "/other"), [], first
while True:
    shutil.rmtree(tree.path_of("s1")[:-3])
    shutil.rmtree(base + "/moved", ignore_errors=True)
    if os.path.lexists(base + "/moved"):
        os.unlink(base + "/moved")
    os.mkdir(tree.path_of("s1")[:-3], 0o700)
    shutil.copytree(base + "/kept", ours)
    said.clear()
    left = count
    try:
        DEEDS[deed]()
    except AgentrunError as error:
        said.append(error.message)
    was_swapped, left = left is None, None
    if trees.fingerprint(base + "/other") != before:
        bad.append([count, "the other place has changed"])
        break
    if any("SECRET" in str(each) for each in said):
        bad.append([count, said])
    if not was_swapped:
        break
    count += step
print(json.dumps([count, bad]))
""".replace("SECRET", SECRET)

DEEDS = ("look", "write", "stop", "repair", "remove")


@pytest.fixture
def base() -> Iterator[Path]:
    """A place that waits for no disk, where there is one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as place:
        yield Path(place)


def _planted(base: Path, deed: str, places: tuple[str, ...], step: int) -> None:
    for number, place in enumerate(places):
        here = base / str(number)
        here.mkdir()
        argv = [sys.executable, "-c", SWAP, str(here), deed, place, str(number % step), str(step)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.stderr == "", place
        count, bad = json.loads(done.stdout)
        assert bad == [], place
        assert count > 20, "nothing much was handed to the system"


@pytest.mark.parametrize("deed", DEEDS)
def test_now_and_then(deed: str, base: Path) -> None:
    _planted(base, deed, PLACES[len(deed) % 5 :: 5], 17)


@pytest.mark.exhaustive
@pytest.mark.parametrize("deed", DEEDS)
def test_at_every_fourth_moment(deed: str, base: Path) -> None:
    _planted(base, deed, PLACES, 4)
