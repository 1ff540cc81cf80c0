"""A stored digest is 64 hexadecimal digits or damage: it is no file name, leads nowhere, and stops no look at others.

# covers promise 2 and 14.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.commands.archiving import pack_all, take_out
from agentrun.commands.checking import check
from agentrun.commands.place import Place
from agentrun.records.codec import Doc
from agentrun.records.finding import Kind
from agentrun.states import EventType
from agentrun.store import inbox
from agentrun.store.attachments import keep_attachment
from agentrun.store.inbox import Order
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

DIGESTS = ["../../../../../outside", "/etc/hostname", "a\0b", "\ud800", "", "x" * 300, "G" * 64]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two sessions; of the first, each kind of record that names bytes."""
    (tmp_path / "outside").write_text("not to be opened\n")
    tree = Tree(str(tmp_path / "root"))
    session = tree.create_session(session_id="bad")
    with writing(session) as writer:
        file = keep_attachment(writer, "a.txt", "file", b"a file")
        inbox.accept_prompt(writer, trees.said("go"), Order(attachments=(file,)))
    executor = Executor(session, "run-1")
    executor.deliver()
    executor.start_tool("op-1", effect="read")
    blob = executor.keep(b"x" * 100)
    executor.append(EventType.TOOL_FINISHED, operationId="op-1", status="succeeded", result="x", blob=blob, attempt=1)
    executor.ask_model("op-2")
    executor.complete()
    other = tree.create_session(session_id="other")
    trees.completed(other)
    trees.run_path(other, "run-1", "report.md").write_text("damaged, too\n")
    return tree


def put(session: SessionDir, digest: str, kind: str) -> None:
    """Puts `digest` in place of the one in the records of that kind."""

    def of_message(doc: Doc) -> None:
        for each in doc.get("accept", {}).get("attachments", ()):
            each["sha256"] = digest

    def of_event(doc: Doc) -> None:
        if kind in doc["payload"] and doc["payload"][kind]:
            doc["payload"][kind]["sha256"] = digest

    if kind == "attachment":
        rewrite(Path(session.directory.path, "messages.jsonl"), of_message)
    else:
        rewrite(trees.run_path(session, "run-1", "operations.jsonl"), of_event)
        trees.run_path(session, "run-1", "run.json").unlink()


def rewrite(path: Path, change: Callable[[Doc], None]) -> None:
    docs = [json.loads(line) for line in path.read_bytes().splitlines()]
    for doc in docs:
        change(doc)
    path.write_text("".join(json.dumps(doc, separators=(",", ":")) + "\n" for doc in docs))


OPENED: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    sys.addaudithook(_note)  # cannot be taken away again


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blob", "report", "attachment"])
def test_what_is_no_digest_is_damage_and_no_file_name(kind: str, tree: Tree, tmp_path: Path) -> None:
    place = Place(tree, None, {})
    log = Path(tree.path_of("bad"), "messages.jsonl" if kind == "attachment" else "runs/run-1/operations.jsonl")
    files = (log, log.with_name("run.json"))
    kept = {path: path.read_bytes() for path in files if path.exists()}
    for number, digest in enumerate(DIGESTS):
        for path, data in kept.items():
            path.write_bytes(data)
        put(tree.session("bad"), digest, kind)
        OPENED.clear()
        for repair in (False, True):
            found = [each for each in check(place, None, repair=repair) if each.is_wrong]
            assert "bad" in {each.session_id for each in found if each.kind is Kind.DAMAGED and each.path == str(log)}
            # (What is wrong with the other is repaired by the first.)
            assert number or repair or "other" in {each.session_id for each in found}
        archive = io.BytesIO()
        assert "bad" in pack_all(tree, archive).session_ids
        archive.seek(0)
        into = Tree(str(tmp_path / f"other-{number}"))
        assert [each.session.session_id for each in take_out(into, archive, "a.tar", None)] == ["bad", "other"]
        tree.session("bad").run("run-1").report()
        assert not [each for each in OPENED if each == digest or "outside" in each], digest
        assert not list(Path(tree.path_of("bad")).rglob("*outside*"))
