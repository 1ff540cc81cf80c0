"""Making and finding sessions: exactly one wins a name, first use in parallel works, damage hides no other session.

Covers A3, A8, A10, A11, A21-A24, A28, B41, B44, B48, cases C6, C16, C17, C19, C20, C27, promises 2, 14, 16 and 18.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import AgentrunError, Ambiguous, CorruptRecord, Denied, NameTaken, NotFound
from agentrun.store import tree as tree_module
from agentrun.store.disk import Directory
from agentrun.store.identity import account_name
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
HOSTILE = [
    "", ".", "..", "/", "../x", "x/../y", "x/", "/etc/passwd", "a/b", "\\", "-x", "--help", "-", "_x", ".x", ".new-x",
    "x\n", "\nx", "x\0", "\0", "x\x1b[2J", "x y", " x", "x ", "x\t", "~", "~root", "$HOME", "*", "?", "[x]", "x;y",
    "x'y", "x%2e", "x:y", "@x", "é", "x\u202e", "\ufeffx", "１", "x" * 65, "x" * 5000, "\udc80",
]  # fmt: skip


def sessions_path(tree: Tree) -> Path:
    return Path(tree.root, "accounts", tree.account, "sessions")


def activity_path(tree: Tree) -> Path:
    return Path(tree.root, "accounts", tree.account, "activity.jsonl")


def test_a_new_session_is_what_was_asked_for(tree: Tree) -> None:
    made = tree.create_session(title="T\u2028", session_id="s1", agent="a", working_directory="/w")
    document = tree.session("s1").read()
    assert document == made.read()
    assert (document.session_id, document.account_id, document.title) == ("s1", "ann", "T\u2028")
    assert (document.agent, document.working_directory, document.archived) == ("a", "/w", False)
    assert (document.revision, document.format_version) == (1, 1)
    assert document.created_at == document.updated_at
    assert made.active() is None
    assert made.run_ids() == made.newest_run_ids(5) == made.tail(5) == []
    names = {path.name for path in (sessions_path(tree) / "s1").iterdir()}
    assert names == {"session.json", "messages.jsonl", "runs", "keys"}


def test_that_something_was_said_in_a_session_is_known_when_it_is_gone(tree: Tree) -> None:
    assert not tree.was_used("s1")
    session = tree.create_session(session_id="s1")
    tree.create_session(session_id="s2")
    assert not tree.was_used("s1"), "to make one is to use it for nothing yet"
    trees.completed(session)
    assert tree.was_used("s1")
    assert not tree.was_used("s2")
    with writing(session) as writer:
        tree.remove_session(writer)
    assert tree.was_used("s1")


@pytest.mark.slow
def test_a_second_new_gives_another_session(tree: Tree) -> None:
    ids = [tree.create_session().session_id for _ in range(20)]
    assert len(set(ids)) == 20
    assert ids == sorted(ids)
    assert set(tree.session_ids()) == set(ids)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path / "root"), "ann")
    assert tree.session_ids() == list(tree.recent_ids()) == []
    for text in ("@last", "s1", "session-1"):
        with pytest.raises(NotFound):
            tree.find(text)
    with pytest.raises(NotFound):
        tree.session("s1")
    assert list(tmp_path.iterdir()) == []


def test_the_account_is_the_effective_user_whatever_the_environment_says(tmp_path: Path) -> None:
    code = "from agentrun.store.identity import account_name; print(account_name())"
    env = {"USER": "mallory", "LOGNAME": "mallory", "USERNAME": "mallory", "HOME": "/home/mallory"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == account_name() == Tree(str(tmp_path)).account


@pytest.mark.slow
def test_hostile_ids_are_refused_in_every_place_and_nothing_is_made(tmp_path: Path) -> None:
    """Case C21."""
    root = tmp_path / "a" / "root"
    tree = Tree(str(root), "ann")
    session = tree.create_session(session_id="s1")
    trees.completed(session)
    run_dir = session.run("run-1")
    before = fingerprint(tmp_path)
    for text in HOSTILE:
        for takes_one in (
            lambda: Tree(str(root), text),  # noqa: B023 - called at once
            lambda: tree.create_session(session_id=text),  # noqa: B023
            lambda: tree.session(text),  # noqa: B023
            lambda: tree.find(text),  # noqa: B023
        ):
            with pytest.raises(Denied, match="is not a"):
                takes_one()
        with pytest.raises(NotFound):
            session.run(text)
        assert not session.has_run(text)
        assert run_dir.blob(text) is None
        assert fingerprint(tmp_path) == before, text


@pytest.mark.parametrize("text", ["../../../../outside", "../outside", "/tmp", "run-1/../../../../outside", "run-x\0"])
def test_a_hostile_id_that_is_stored_is_damage_and_leads_nowhere(
    session: SessionDir, tmp_path: Path, text: str
) -> None:
    """Case C21: whoever can write into a file of the tree must not be able to make agentrun write elsewhere."""
    trees.completed(session)
    path = Path(session.directory.path)
    prompt = json.loads((path / "messages.jsonl").read_bytes().splitlines()[0])
    prompt |= {"seq": 3, "runId": text, "accept": {**prompt["accept"], "behind": [text]}}
    with (path / "messages.jsonl").open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    (path / "active").write_text(text + "\n")
    names = {name for name in fingerprint(tmp_path) if not name.startswith("root/")}
    assert session.active() is None
    run_id = trees.accept(session).run_id
    assert run_id == "run-2"
    assert session.active() == "run-2"
    assert [each.offset > 0 for each in session.messages.damage] == [True]
    assert {name for name in fingerprint(tmp_path) if not name.startswith("root/")} == names
    assert sorted(os.listdir(path / "runs")) == ["run-1", "run-2"]


@pytest.mark.parametrize("field", ["sessionId", "accountId"])
def test_a_session_that_says_it_is_another_one_is_damaged(session: SessionDir, field: str) -> None:
    """A23, A27: a directory is no permission."""
    path = Path(session.directory.path, "session.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {field: "other"}))
    with pytest.raises(CorruptRecord, match="other") as caught:
        session.read()
    assert caught.value.path == str(path)
    with pytest.raises(CorruptRecord), writing(session):
        pass


def test_messages_and_events_of_another_session_are_not_taken_for_this_one_s(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    other = tree.create_session(session_id="s2")
    trees.completed(other, "secret")
    for name in ("messages.jsonl", "runs/run-1/operations.jsonl"):
        data = Path(other.directory.path, name).read_bytes()
        with Path(session.directory.path, name).open("ab") as file:
            file.write(data)
    Path(session.directory.path, "runs/run-1/run.json").write_bytes(
        Path(other.directory.path, "runs/run-1/run.json").read_bytes()
    )
    assert [message.text for message in session.messages_since(1)] == ["go", "All is well.\n"]
    assert len(session.messages.damage) == 2
    run_dir = session.run("run-1")
    assert run_dir.snapshot() is None
    assert run_dir.load().session_id == "s1"
    assert {event.session_id for event in run_dir.all_events()} == {"s1"}


def test_a_newer_format_is_read_and_not_written(session: SessionDir) -> None:
    trees.completed(session)
    path = Path(session.directory.path, "session.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"formatVersion": 2, "mood": "good"}))
    before = fingerprint(session.directory.path)
    assert session.read().title == "Test"
    assert session.read().extra == {"mood": "good"}
    assert session.run("run-1").load().is_over
    with pytest.raises(Denied, match="format 2") as caught:
        trees.accept(session)
    assert str(path) in caught.value.message
    assert fingerprint(session.directory.path) == before


# --- making, in competition and after crashes


def test_a_name_that_is_taken_is_refused_and_changes_nothing(tree: Tree) -> None:
    tree.create_session(session_id="s1")
    tree.create_session(session_id="s2")
    before = fingerprint(tree.root)
    with pytest.raises(NameTaken) as caught:
        tree.create_session(session_id="s1", title="other")
    assert caught.value.session_id == "s1"
    assert fingerprint(tree.root) == before
    assert tree.find("@last").session_id == "s2"


@pytest.mark.parametrize("kind", ["file", "symlink", "dangling"])
def test_a_name_that_something_else_has_is_taken(tree: Tree, tmp_path: Path, kind: str) -> None:
    tree.create_session(session_id="s0")
    path = sessions_path(tree) / "s1"
    if kind == "file":
        path.write_text("x")
    else:
        path.symlink_to(tmp_path if kind == "symlink" else tmp_path / "nowhere")
    before = fingerprint(tree.root)
    with pytest.raises(NameTaken):
        tree.create_session(session_id="s1")
    assert fingerprint(tree.root) == before


CREATE = 'from agentrun.store.tree import Tree\ntree = Tree({root!r}, "ann")'


@pytest.mark.slow
def test_of_sixteen_processes_that_ask_for_one_name_exactly_one_gets_it(crew: Callable[..., Any], tree: Tree) -> None:
    members = crew(
        16, 'return tree.create_session(session_id=argument, title="x").session_id', CREATE.format(root=tree.root)
    )
    for number in range(10):
        results = members.all(f"name-{number}")
        won = [result for result in results if "ok" in result]
        assert len(won) == 1
        assert {result["error"] for result in results if "ok" not in result} == {"NameTaken"}
        assert tree.session(f"name-{number}").read().title == "x"
    assert sorted(os.listdir(sessions_path(tree))) == sorted(f"name-{number}" for number in range(10))


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_first_use_by_thirty_two_processes_at_once_in_a_root_that_is_not_there(
    crew: Callable[..., Any], tmp_path: Path, umask: int
) -> None:
    """Cases C6 and C20."""
    root = tmp_path / "not" / "there" / "yet"
    members = crew(
        32,
        "session = tree.create_session()\nrun = trees.accept(session)\nreturn [session.session_id, run.run_id]",
        f"import os\nos.umask({umask})\nfrom agentrun.testing import trees\n" + CREATE.format(root=str(root)),
    )
    results = members.all()
    assert [result.get("ok", result)[1] for result in results] == ["run-1"] * 32
    tree = Tree(str(root), "ann")
    assert sorted(result["ok"][0] for result in results) == sorted(tree.session_ids())
    assert len(list(tree.recent_ids())) == 32
    wrong = {
        name: found.mode
        for name, found in fingerprint(tmp_path).items()
        if found.mode not in ("drwx------", "-rw-------")
    }
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_everything_of_a_whole_life_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Case C20."""
    before = os.umask(umask)
    try:
        session = Tree(str(tmp_path / "root"), "ann").create_session(session_id="s1")
        trees.whole_life(session)
        with Path(session.directory.path, "messages.jsonl").open("a") as file:
            file.write("torn")
        trees.accept(session)
    finally:
        os.umask(before)
    found = fingerprint(tmp_path)
    assert {name: each.mode for name, each in found.items() if each.mode not in ("drwx------", "-rw-------")} == {}
    names = {Path(name).name for name in found}
    assert {"report.md", "report.draft.md", "cancel", "run.json", "active", "scratch", "blobs", "stale"} <= names
    assert any(".torn-" in name for name in names)
    assert not any(name.startswith(".new-") for name in names)


def test_what_a_crash_left_of_a_name_does_not_block_it(tree: Tree) -> None:
    tree.create_session(session_id="s0")
    half = sessions_path(tree) / ".new-s1"
    half.mkdir()
    (half / "session.json").write_text("{")
    assert tree.create_session(session_id="s1").read().session_id == "s1"
    assert set(tree.session_ids()) == {"s0", "s1"}
    # Nothing is deleted unasked.
    assert (half / "session.json").read_text() == "{"


def test_an_empty_directory_of_that_name_is_in_the_way(tree: Tree) -> None:
    tree.create_session(session_id="s0")
    (sessions_path(tree) / "s1").mkdir()
    with pytest.raises(NameTaken):
        tree.create_session(session_id="s1")
    assert list((sessions_path(tree) / "s1").iterdir()) == []


def test_a_root_that_is_a_symlink_works_and_stays_one(tmp_path: Path) -> None:
    """Case C21."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    tree = Tree(str(tmp_path / "link"), "ann")
    trees.whole_life(tree.create_session(session_id="s1"))
    assert (tmp_path / "link").is_symlink()
    assert Tree(str(tmp_path / "real"), "ann").find("s1").read().session_id == "s1"


@pytest.mark.parametrize("name", ["accounts", "accounts/ann", "accounts/ann/sessions", "accounts/ann/sessions/s1"])
@pytest.mark.parametrize("kind", ["symlink", "file", "fifo"])
def test_no_component_below_the_root_may_be_anything_but_a_directory(
    tmp_path: Path, tree: Tree, session: SessionDir, name: str, kind: str
) -> None:
    """Case C21."""
    trees.completed(session)
    place = Path(tree.root, name)
    place.rename(tmp_path / "moved")
    match kind:
        case "symlink":
            place.symlink_to(tmp_path / "moved")
        case "file":
            place.write_text("x")
        case "fifo":
            os.mkfifo(place)
    before = fingerprint(tmp_path)
    for action in (
        lambda: tree.session("s1").read(),
        lambda: tree.find("s1").read(),
        lambda: trees.accept(tree.session("s1")),
    ):
        with pytest.raises(Denied):
            action()
    if not name.endswith("s1"):
        with pytest.raises(Denied):
            tree.create_session(session_id="s2")
    assert fingerprint(tmp_path) == before


# --- finding


def test_a_session_is_found_by_its_id_or_a_unique_beginning_or_end(tree: Tree) -> None:
    for name in ("session-aaa111", "session-aab222", "notes", "notes-2"):
        tree.create_session(session_id=name)
    for text, meant in [
        ("session-aaa111", "session-aaa111"), ("session-aaa", "session-aaa111"), ("aaa", "session-aaa111"),
        ("aab", "session-aab222"), ("222", "session-aab222"), ("b222", "session-aab222"), ("notes", "notes"),
        ("notes-", "notes-2"), ("111", "session-aaa111"),
    ]:  # fmt: skip
        assert tree.find(text).session_id == meant, text


def test_what_can_mean_several_is_refused_with_all_of_them(tree: Tree) -> None:
    """Case C16."""
    for name in ("session-aaa111", "session-aab111", "aazz"):
        tree.create_session(session_id=name)
    before = fingerprint(tree.root)
    for text, meant in [
        ("aa", ["aazz", "session-aaa111", "session-aab111"]),
        ("111", ["session-aaa111", "session-aab111"]),
        ("session-", ["session-aaa111", "session-aab111"]),
    ]:
        with pytest.raises(Ambiguous) as caught:
            tree.find(text)
        assert caught.value.candidates == meant
        assert f"{len(meant)} sessions" in caught.value.message
        assert caught.value.exit_code == 8
    for text in ("nothing", "111x", "SESSION-aaa111"):
        with pytest.raises(NotFound):
            tree.find(text)
    assert fingerprint(tree.root) == before


def test_many_candidates_are_all_there_and_the_message_stays_short(tree: Tree) -> None:
    for number in range(12):
        tree.create_session(session_id=f"session-a{number:02}")
    with pytest.raises(Ambiguous, match="12 sessions") as caught:
        tree.find("a")
    assert len(caught.value.candidates) == 12
    assert len(caught.value.message) < 200


def test_last_is_by_what_was_recorded_and_not_by_the_times_of_files(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases C16 and C27."""
    sessions = [tree.create_session(session_id=f"s{number}") for number in range(3)]
    trees.accept(sessions[1])
    for path in [*Path(tree.root).rglob("*"), Path(tree.root)]:
        os.utime(path, (0, 0))
    os.utime(sessions_path(tree) / "s0")
    assert tree.find("@last").session_id == "s1"
    assert list(tree.recent_ids()) == ["s1", "s2", "s0"]
    tree.create_session(session_id="s3")
    assert list(tree.recent_ids()) == ["s3", "s1", "s2", "s0"]
    # Many are remembered in another way.
    monkeypatch.setattr(tree_module, "_MANY", 2)
    assert list(tree.recent_ids()) == ["s3", "s1", "s2", "s0"]


def test_last_is_inside_the_account(tree: Tree) -> None:
    tree.create_session(session_id="mine")
    Tree(tree.root, "bob").create_session(session_id="his")
    assert tree.find("@last").session_id == "mine"
    assert tree.session_ids() == ["mine"]
    with pytest.raises(NotFound):
        tree.find("his")


def _spoil(path: Path, how: str) -> None:
    match how:
        case "lost":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut at the front":
            path.write_bytes(path.read_bytes()[-30:])
        case "torn":
            path.write_bytes(path.read_bytes()[:-5])
        case "garbage":
            path.write_bytes(
                os.urandom(5000) + b"\n" + b'{"sessionId":"../../x"}\n{"sessionId":7}\n{"sessionId":".new-s1"}\n'
            )
        case "of others":
            path.write_bytes(b'{"sessionId":"gone","at":"2026"}\n')
        case "NUL":
            path.write_bytes(b"\0" * len(path.read_bytes()))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "empty", "cut at the front", "torn", "garbage", "of others", "NUL"])
def test_without_its_hint_the_list_is_complete_and_ordered_by_the_records(tree: Tree, how: str) -> None:
    """Case C16."""
    for number in range(4):
        tree.create_session(session_id=f"s{number}")
    times = {"s0": "2026-03-01", "s1": "2026-04-01", "s2": "2026-01-01", "s3": "2026-02-01"}
    for name, at in times.items():
        trees.accept(tree.session(name))
        path = sessions_path(tree) / name / "messages.jsonl"
        message = json.loads(path.read_text()) | {"at": at + "T00:00:00.000Z"}
        path.write_text(json.dumps(message) + "\n")
    _spoil(activity_path(tree), how)
    listed = list(tree.recent_ids())
    assert sorted(listed) == ["s0", "s1", "s2", "s3"]
    if how not in ("cut at the front", "torn"):
        assert listed == ["s1", "s0", "s3", "s2"]
        assert tree.find("@last").session_id == "s1"
    # And the hint works again from the next change on.
    trees.add(tree.session("s2"), "run-1", "steer", "x")
    assert next(tree.recent_ids()) == "s2"


@pytest.mark.slow
@pytest.mark.parametrize("hint", ["kept", "lost"])
def test_a_damaged_session_hides_no_other_in_the_list(tree: Tree, tmp_path: Path, hint: str) -> None:
    """Promise 2."""
    for name in ("good", "no-document", "bad-document", "bad-messages", "no-messages", "other", "no-runs"):
        trees.accept(tree.create_session(session_id=name))
    where = sessions_path(tree)
    (where / "no-document" / "session.json").unlink()
    (where / "bad-document" / "session.json").write_text("\0\0")
    (where / "bad-messages" / "messages.jsonl").write_bytes(b"\0\0\n\xff\n")
    (where / "no-messages" / "messages.jsonl").unlink()
    shutil.rmtree(where / "no-runs" / "runs")
    (where / "a directory").mkdir()
    (where / "stray.txt").write_text("x")
    (where / "link").symlink_to(tmp_path)
    os.mkfifo(where / "fifo")
    (where / ".new-half").mkdir()
    (where / "empty").mkdir()
    if hint == "lost":
        activity_path(tree).unlink()
    listed = list(tree.recent_ids())
    assert {"good", "other", "no-document", "bad-document", "bad-messages", "no-messages", "no-runs"} <= set(listed)
    assert "a directory" not in listed
    assert ".new-half" not in listed
    assert len(listed) == len(set(listed))
    readable = []
    for name in listed:
        try:
            readable.append(tree.session(name).read().session_id)
        except AgentrunError:
            continue
    assert {"good", "other"} <= set(readable)
    assert tree.find("good").read().session_id == "good"


MANY = """\
import json, resource
from agentrun.store.tree import Tree
tree = Tree({root!r}, "ann")
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
print(json.dumps([len(list(tree.recent_ids())), tree.find("@last").session_id]))
"""


@pytest.mark.slow
def test_a_list_of_many_sessions_without_a_hint_opens_a_few_files_at_a_time(tree: Tree) -> None:
    """Case C17: the limit of open files is no limit of sessions."""
    for number in range(60):
        tree.create_session(session_id=f"s{number:02}")
    activity_path(tree).unlink()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 30
    argv = [sys.executable, "-c", MANY.format(root=tree.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [60, "s59"]


# --- other users


@AS_ROOT
def test_another_user_s_account_and_sessions_answer_like_missing_ones(tree: Tree, session: SessionDir) -> None:
    """A22, A27: a verified identity, checked before access."""
    tree.create_session(session_id="s2")
    theirs = Tree(tree.root, "bob")
    theirs.create_session(session_id="s1")
    for path in [Path(tree.root, "accounts", "bob"), *Path(tree.root, "accounts", "bob").rglob("*")]:
        os.chown(path, 65534, 65534)
    os.chown(session.directory.path, 65534, 65534)
    before = fingerprint(tree.root)
    for foreign in (theirs, tree):
        with pytest.raises(NotFound) as caught:
            foreign.session("s1")
        with pytest.raises(NotFound) as missing:
            foreign.session("s9")
        assert caught.value.message.replace("s1", "s9") == missing.value.message
        assert caught.value.hint == missing.value.hint
    assert theirs.session_ids() == list(theirs.recent_ids()) == []
    with pytest.raises(Denied, match="another user"):
        theirs.create_session(session_id="s3")
    assert tree.find("s2").session_id == "s2"
    assert fingerprint(tree.root) == before


AS_NOBODY = """\
import json, os, sys
from agentrun.errors import AgentrunError
from agentrun.store.tree import Tree
os.setgroups([]); os.setgid(65534); os.setuid(65534)
said = []
for account, action in json.loads(sys.argv[2]):
    try:
        tree = Tree(sys.argv[1], account)
        said.append(["done", str(getattr(tree, action[0])(*action[1:]))])
    except AgentrunError as error:
        said.append([type(error).__name__, error.message])
print(json.dumps(said))
"""


@AS_ROOT
def test_an_account_that_the_kernel_keeps_one_out_of_answers_like_a_missing_one(tmp_path: Path) -> None:
    root = Path("/tmp", f"agentrun-test-{os.getpid()}-{tmp_path.name}")
    try:
        root.mkdir()
        root.chmod(0o755)
        (root / "accounts").mkdir()
        (root / "accounts").chmod(0o1777)
        Tree(str(root), "ann").create_session(session_id="s1")
        actions = [
            ["ann", ["session", "s1"]],
            ["ann", ["session", "s9"]],
            ["ann", ["find", "s1"]],
            ["nobody", ["session_ids"]],
        ]
        argv = [sys.executable, "-c", AS_NOBODY, str(root), json.dumps(actions)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/")
        there, missing, found, own = json.loads(done.stdout)
        assert there == ["NotFound", missing[1].replace("s9", "s1")]
        assert found == there
        assert own == ["done", "[]"]
    finally:
        shutil.rmtree(root)


@AS_ROOT
@pytest.mark.parametrize(
    "name", ["session.json", "messages.jsonl", "runs/run-1/run.json", "runs/run-1/operations.jsonl"]
)
def test_a_file_of_another_user_is_refused(tree: Tree, session: SessionDir, name: str) -> None:
    trees.completed(session)
    os.chown(Path(session.directory.path, name), 65534, 65534)
    again = tree.session("s1")
    refused = []
    for action in (lambda: again.run("run-1").load(), lambda: trees.accept(again)):
        try:
            action()
        except Denied as error:
            refused.append(error.message)
    assert any("belongs to another user" in each for each in refused)


def test_directories_refuse_what_leads_out_of_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    directory = Directory.root(str(tmp_path / "in"))
    with pytest.raises(Denied):
        directory.open("link")
    with pytest.raises(NotFound):
        directory.open("missing")
    with pytest.raises(NotFound):
        Directory.root(str(tmp_path / "missing"))


# covers B45
def test_only_runs_that_are_not_over_are_looked_at(tree: Tree) -> None:
    """Of the others not even the events are read: here they could not be."""
    for name in ("completed", "cancelled", "idle", "open", "waiting", "accepted"):
        tree.create_session(title="t", session_id=name)
    trees.completed(tree.session("completed"))
    trees.cancel(tree.session("cancelled"), trees.accept(tree.session("cancelled")).run_id)
    Executor(tree.session("open"), trees.accept(tree.session("open")).run_id).die()
    waiting = Executor(tree.session("waiting"), trees.accept(tree.session("waiting")).run_id)
    waiting.ask()
    waiting.die()
    # A crash right after the acceptance: only the message tells of the run.
    accepted = trees.accept(tree.session("accepted"))
    shutil.rmtree(accepted.directory.path)
    os.unlink(os.path.join(tree.session("accepted").directory.path, "active"))
    for name in ("completed", "cancelled"):
        run = trees.run_path(tree.session(name), "run-1")
        (run / "operations.jsonl").unlink()
        (run / "operations.jsonl").mkdir()
        (run / "run.json").write_bytes(b"?")
    assert sorted(tree.unfinished_ids()) == ["accepted", "open", "waiting"]
