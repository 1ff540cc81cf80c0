"""An archive is the same for the same tree, comes back byte for byte, and lets nothing else in."""

from __future__ import annotations

import gzip
import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agentrun.commands.archiving import pack, pack_all, take_out
from agentrun.errors import AgentrunError, CorruptRecord, Denied, NameTaken, SlotTaken, UsageError
from agentrun.store.archive import MANIFEST, tar, unpacking
from agentrun.store.check import check_session, check_tree
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees

Content = dict[str, tuple[str, str]]


def content(tree: Tree) -> Content:
    """What lies in the tree and with which modes, without the times, and without the hint of activity."""
    found = trees.fingerprint(tree.root) if os.path.isdir(tree.root) else {}
    return {path: each[:2] for path, each in found.items() if "/sessions/" in path}


def packed(tree: Tree, session: SessionDir) -> bytes:
    out = io.BytesIO()
    pack(tree, session, out)
    return out.getvalue()


def unpack(tree: Tree, data: bytes | BinaryIO, new_id: str | None = None) -> list[str]:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    return [each.session.session_id for each in take_out(tree, source, "a.tar", new_id)]


@pytest.fixture
def other(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path / "other"), "ann")


@pytest.fixture
def lived(session: SessionDir) -> SessionDir:
    """A session that holds one of everything, and what tools may leave in their working space."""
    trees.whole_life(session)
    scratch = trees.run_path(session, "run-1", "scratch")
    deep = scratch / "deep" / ("n" * 200) / ("m" * 200)
    deep.mkdir(parents=True, mode=0o700, exist_ok=True)
    (deep / "file").write_text("deep")
    (scratch / "tool.sh").write_text("#!/bin/sh\n")
    for path, mode in ((scratch / "tool.sh", 0o700), (deep / "file", 0o600), (scratch, 0o700)):
        path.chmod(mode)
    for below in (scratch / "deep", deep.parent, deep):
        below.chmod(0o700)
    odd = os.path.join(os.fsencode(scratch), b"\xff\n name")
    with open(odd, "wb") as file:
        file.write(b"\0" * 1024)
    os.chmod(odd, 0o600)
    Path(session.directory.path, "messages.jsonl.torn-12").write_bytes(b'{"seq":')
    Path(session.directory.path, "messages.jsonl.torn-12").chmod(0o600)
    return session


def test_it_comes_back_byte_for_byte(tree: Tree, lived: SessionDir, other: Tree) -> None:
    data = packed(tree, lived)
    assert packed(tree, lived.another()) == data
    before = content(tree)
    assert unpack(other, data) == ["s1"]
    assert content(other) == before
    assert packed(other, other.session("s1")) == data
    assert list(check_session(other, "s1", repair=False)) == list(check_session(tree, "s1", repair=False))
    assert list(other.recent_ids()) == ["s1"]


def test_any_tar_reads_it(tree: Tree, lived: SessionDir, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(packed(tree, lived))
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert names[0] == MANIFEST
        assert {(each.mtime, each.uid, each.gid, each.uname) for each in archive} == {(0, 0, 0, "")}
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-xf", path, "-C", out], check=True)
    assert trees.fingerprint(out / "s1").keys() == trees.fingerprint(lived.directory.path).keys()
    assert (out / "s1" / "messages.jsonl").read_bytes() == Path(lived.directory.path, "messages.jsonl").read_bytes()


def test_under_another_id_everything_is_of_that_id(tree: Tree, session: SessionDir, other: Tree) -> None:
    trees.whole_life(session)
    data = packed(tree, session)
    assert unpack(tree, data, "s2") == ["s2"]
    for name in ("messages.jsonl", "session.json", "runs/run-1/operations.jsonl", "runs/run-1/run.json"):
        text = Path(tree.path_of("s2"), name).read_text()
        assert '"s2"' in text
        assert '"s1"' not in text
    assert [each for each in check_session(tree, "s2", repair=False) if each.is_wrong] == []
    assert trees.completed(tree.session("s2"), "and on") == "run-4"
    both = io.BytesIO()
    pack_all(tree, both)
    with pytest.raises(UsageError):
        unpack(other, both.getvalue(), "s3")


def test_a_session_that_differs_is_refused_and_nothing_changes(tree: Tree, session: SessionDir, other: Tree) -> None:
    tree.create_session(session_id="s0")
    out = io.BytesIO()
    assert pack_all(tree, out).session_ids == ("s0", "s1")
    other.create_session(session_id="s1", title="mine")
    before = content(other)
    with pytest.raises(NameTaken) as refused:
        unpack(other, out.getvalue())
    assert "--as" in str(refused.value.hint)
    assert content(other) == before


def test_a_session_with_a_run_that_is_not_over_is_not_packed(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    with pytest.raises(SlotTaken, match="executed a second time"):
        packed(tree, session)
    tree.create_session(session_id="s2")
    result = pack_all(tree, io.BytesIO())
    assert result.session_ids == ("s2",)
    assert [str(error).split(" ")[0] for error in result.refused] == ["s1/run-1"]


def test_a_link_in_a_working_space_is_left_out_and_told(tree: Tree, session: SessionDir, other: Tree) -> None:
    trees.completed(session)
    scratch = trees.run_path(session, "run-1", "scratch")
    scratch.mkdir(exist_ok=True, mode=0o700)
    (scratch / "link").symlink_to("/etc/passwd")
    os.mkfifo(scratch / "fifo")
    (scratch / "one").write_text("x")
    os.link(scratch / "one", scratch / "two")
    out = io.BytesIO()
    assert sorted(Path(each).name for each in pack(tree, session, out).left_out) == ["fifo", "link"]
    unpack(other, out.getvalue())
    assert sorted(os.listdir(trees.run_path(other.session("s1"), "run-1", "scratch"))) == ["one", "two"]


# What must not be let in. Each is an archive that is whole, with something bad behind a session that is good.


def altered(data: bytes, *extra: tarfile.TarInfo, body: bytes = b"x") -> bytes:
    """The archive with more members at its end."""
    end = data[: -len(tar.END)]
    for each in extra:
        each.size = len(body) if each.type == tarfile.REGTYPE else 0
        end += each.tobuf(tarfile.GNU_FORMAT) + (body + tar.padding(len(body)) if each.size else b"")
    return end + tar.END


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o777
    return info


BAD = {
    "up": member("s1/../../../../evil"),
    "absolute": member("/tmp/evil"),
    "up first": member("../evil"),
    "a dot": member("s1/./evil"),
    "nothing between": member("s1//evil"),
    "no session": member("evil"),
    "a hidden session": member(".new-evil", tarfile.DIRTYPE),
    "a symbolic link": member("s1/evil", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member("s1/evil", tarfile.LNKTYPE, "s1/session.json"),
    "a device": member("s1/evil", tarfile.CHRTYPE),
    "a block device": member("s1/evil", tarfile.BLKTYPE),
    "a fifo": member("s1/evil", tarfile.FIFOTYPE),
    "a sparse file": member("s1/evil", tarfile.GNUTYPE_SPARSE),
    "an extended header": member("s1/evil", tarfile.XHDTYPE),
    "a file twice": member("s1/session.json"),
    "a directory twice": member("s1/runs", tarfile.DIRTYPE),
    "a session twice": member("s1", tarfile.DIRTYPE),
    "a directory that is a file": member("s1/session.json/evil"),
    "no directory before it": member("s1/evil/evil"),
    "another session": member("s2/evil"),
    "too long": member("s1/" + "n" * 256),
    "too deep": member("s1/" + "d/" * 101 + "evil"),
    "a run that goes on": member("s1/active"),
    "a lease": member("s1/runs/run-1/lease.json"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_bad_in_an_archive_is_refused_and_nothing_changes(
    what: str, tree: Tree, session: SessionDir, other: Tree, tmp_path: Path
) -> None:
    # case C21
    trees.completed(session)
    other.create_session(session_id="there")
    before, outside = content(other), sorted(os.listdir(tmp_path))
    with pytest.raises(Denied):
        unpack(other, altered(packed(tree, session), BAD[what]))
    assert content(other) == before
    assert sorted(os.listdir(tmp_path)) == outside
    assert not os.path.exists("/tmp/evil")


def test_the_good_one_among_them_is_taken(tree: Tree, session: SessionDir, other: Tree) -> None:
    """The table above would show nothing if every altered archive were refused."""
    trees.completed(session)
    assert unpack(other, altered(packed(tree, session), member("s1/note.txt"))) == ["s1"]
    assert Path(other.path_of("s1"), "note.txt").stat().st_mode & 0o777 == 0o700


def test_what_would_be_executed_by_whoever_recovers_runs_is_refused(
    tree: Tree, session: SessionDir, other: Tree
) -> None:
    trees.completed(session)
    messages = Path(session.directory.path, "messages.jsonl")
    events = trees.run_path(session, "run-1", "operations.jsonl")
    whole = events.read_bytes()
    for lines in (whole.splitlines(True)[:1], whole.splitlines(True)[:-1]):
        events.write_bytes(b"".join(lines))
        data = forged(session)
        with pytest.raises(Denied, match="executed a second time"):
            unpack(other, data)
    events.write_bytes(whole)
    prompt = messages.read_bytes().splitlines(True)[0]
    later = prompt.replace(b'"seq":1', b'"seq":3').replace(b'"run-1"', b'"run-2"')
    messages.write_bytes(messages.read_bytes() + later)
    with pytest.raises(Denied, match="run-2 is not over"):
        unpack(other, forged(session))
    assert content(other) == {}


def forged(session: SessionDir) -> bytes:
    """An archive of the files as they are, made by hand."""
    about = b'{"formatVersion": 1, "type": "agentrun-archive", "accountId": "ann"}\n'
    data = tar.header(MANIFEST.encode(), len(about)) + about + tar.padding(len(about))
    root = Path(session.directory.path)
    for path in [root, *sorted(root.rglob("*"))]:
        name = path.relative_to(root.parent).as_posix().encode()
        if path.is_dir():
            data += tar.header(name, 0, is_directory=True)
        elif path.name not in ("active", "lease.json"):
            body = path.read_bytes()
            data += tar.header(name, len(body)) + body + tar.padding(len(body))
    return data + tar.END


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: data.replace(b'"ann"', b'"bob"', 1), Denied),
        (lambda data: data.replace(b'"ann",\n  "title"', b'"bob",\n  "title"'), Denied),
        (lambda data: data.replace(b'"formatVersion": 1', b'"formatVersion": 9'), Denied),
        (lambda data: data.replace(b'"sessionId": "s1"', b'"sessionId": "s9"'), CorruptRecord),
        (lambda data: data.replace(b"agentrun-archive", b"agentrun-nothing", 2), CorruptRecord),
        (lambda data: data[1024:], CorruptRecord),
        (lambda data: data[:-1024], CorruptRecord),
        (lambda data: data[:512], CorruptRecord),
        (lambda data: b"", CorruptRecord),
        (lambda data: b"\0" * 1024, CorruptRecord),
        (lambda data: gzip.compress(data), CorruptRecord),
    ],
)
def test_another_account_a_newer_format_and_what_is_no_whole_archive(
    change: Callable[[bytes], bytes], error: type[AgentrunError], tree: Tree, session: SessionDir, other: Tree
) -> None:
    trees.completed(session)
    data = change(packed(tree, session))
    with pytest.raises(error):
        unpack(other, data)
    assert content(other) == {}


def test_of_a_tar_file_that_is_no_archive_it_is_said_what_one_begins_with(other: Tree) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as file:
        file.addfile(tarfile.TarInfo("s1/session.json"))
    with pytest.raises(CorruptRecord, match=MANIFEST) as refused:
        unpack(other, out.getvalue())
    assert "agentrun export SESSION --format archive" in str(refused.value.hint)


def test_an_archive_that_was_cut_off_anywhere_leaves_nothing(tree: Tree, session: SessionDir, other: Tree) -> None:
    trees.completed(session)
    data = packed(tree, session)
    for length in range(0, len(data) - 512, 512 * 3 + 100):
        with pytest.raises(CorruptRecord, match=r"at byte \d+ it ends there|no archive") as refused:
            unpack(other, data[:length])
        assert "agentrun export" in str(refused.value.hint) or "no archive" in str(refused.value)
        assert content(other) == {}


def test_sizes_that_are_a_lie_cost_nothing(tree: Tree, session: SessionDir, other: Tree) -> None:
    trees.completed(session)
    end = packed(tree, session)[: -len(tar.END)]
    huge = tar.header(b"s1/huge", 1 << 60)
    name = tar._block(b"././@LongLink", 1 << 40, b"L", 0o600)
    negative = tar.header(b"s1/x", 0).replace(b"%011o" % 0, b"-0000000001", 1)
    for block in (huge, name, negative):
        with pytest.raises(CorruptRecord):
            unpack(other, end + block + b"x" * 4096)
        assert content(other) == {}


def test_the_number_of_members_is_limited(
    tree: Tree, session: SessionDir, other: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MOST_MEMBERS", 5)
    trees.completed(session)
    with pytest.raises(Denied, match="more than 5 members"):
        unpack(other, packed(tree, session))
    assert content(other) == {}


@pytest.mark.parametrize(
    "name", ["session.json", "messages.jsonl", "runs/run-1/operations.jsonl", "runs/run-1/run.json"]
)
def test_a_record_that_nobody_could_hold_is_refused(
    name: str, tree: Tree, session: SessionDir, other: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.completed(session)
    path = Path(session.directory.path, name)
    with path.open("ab") as file:
        file.write(b" " * 3_000_000)
    data = forged(session)
    monkeypatch.setattr(unpacking, "LARGEST_RECORD", 2_000_000)
    with pytest.raises(Denied, match="2,000,000 bytes"):
        unpack(other, data)
    assert content(other) == {}


class Cut(io.BytesIO):
    """An archive whose reading comes to an end in the middle."""

    def __init__(self, data: bytes, at: int, happens: Callable[[], None]) -> None:
        super().__init__(data)
        self._at = at
        self._happens = happens

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= self._at:
            self._happens()
        return super().read(size)


def test_an_import_that_is_interrupted_leaves_nothing(tree: Tree, session: SessionDir, other: Tree) -> None:
    trees.completed(session)
    data = packed(tree, session)

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    for at in range(512, len(data), 4096):
        with pytest.raises(KeyboardInterrupt):
            unpack(other, Cut(data, at, press_ctrl_c))
        assert content(other) == {}


KILLED = """
import io, os, sys
from agentrun.store.tree import Tree
from tests.store.test_archive import Cut, unpack
data = open(sys.argv[2], "rb").read()
unpack(Tree(sys.argv[1], "ann"), Cut(data, int(sys.argv[3]), lambda: os.kill(os.getpid(), 9)))
"""


@pytest.mark.slow
def test_an_import_that_is_killed_leaves_nothing_that_anybody_sees(
    tree: Tree, session: SessionDir, other: Tree, tmp_path: Path
) -> None:
    trees.completed(session)
    data = packed(tree, session)
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    root = Path(__file__).resolve().parents[2]
    for at in (4096, len(data) - 1600):
        done = subprocess.run([sys.executable, "-c", KILLED, other.root, path, str(at)], cwd=root, check=False)
        assert done.returncode == -9
        assert other.session_ids() == []
        assert list(other.recent_ids()) == []
    assert {found.kind.value for found in check_tree(other, repair=False)} == {"leftover"}
    with other.staging() as staging:
        # What another importer is at is left alone; what dead ones left is gone.
        assert unpack(other, data) == ["s1"]
        assert [name for _, name in other.strangers()] == [os.path.basename(staging.directory.path)]
    assert list(check_tree(other, repair=False)) == []


KILLED_BETWEEN = """
import os, sys
from agentrun.store.disk import Directory
from agentrun.store.tree import Tree
from tests.store.test_archive import unpack
move, moved = Directory.move, []
def move_or_die(self, *names, **where):
    if len(moved) == 2:
        os.kill(os.getpid(), 9)
    moved.append(names)
    return move(self, *names, **where)
Directory.move = move_or_die
unpack(Tree(sys.argv[1], "ann"), open(sys.argv[2], "rb").read())
"""


def killed_between_two_names(other: Tree, path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, other.root, path], cwd=root, check=False)
    assert done.returncode == -9


@pytest.mark.slow
def test_a_backup_that_was_cut_off_between_two_sessions_is_completed_by_importing_it_again(
    tree: Tree, lived: SessionDir, other: Tree, tmp_path: Path
) -> None:
    for name in ("s0", "s2", "s3"):
        trees.completed(tree.create_session(session_id=name))
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        pack_all(tree, file)
    killed_between_two_names(other, path)
    there = set(other.session_ids())
    assert len(there) == 2
    with path.open("rb") as file:
        taken = take_out(other, file, "a.tar", None)
    assert {each.session.session_id for each in taken if each.is_here_already} == there
    assert content(other) == content(tree)
    assert list(other.recent_ids()) == list(tree.recent_ids())
    assert list(check_tree(other, repair=False)) == list(check_tree(tree, repair=False))
    # Once more changes nothing; what differs by one byte is refused, before anything is taken in.
    assert unpack(other, path.read_bytes()) == ["s0", "s1", "s2", "s3"]
    shutil.rmtree(other.path_of("s0"))
    scratch = Path(other.path_of("s1"), "runs", "run-1", "scratch", "tool.sh")
    scratch.write_text("#!/bin/ss\n")
    before = content(other)
    with pytest.raises(NameTaken, match="s1"):
        unpack(other, path.read_bytes())
    assert content(other) == before


@pytest.mark.slow
def test_several_that_import_the_same_at_once_get_on_with_each_other(
    tree: Tree, other: Tree, tmp_path: Path, crew: Callable[..., Any]
) -> None:
    # case C6
    names = [f"s{number}" for number in range(8)]
    for name in names:
        trees.completed(tree.create_session(session_id=name))
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        pack_all(tree, file)
    setup = "from agentrun.commands.archiving import take_out\nfrom agentrun.store.tree import Tree"
    work = f"""
with open({str(path)!r}, "rb") as file:
    taken = take_out(Tree({other.root!r}, "ann"), file, "a.tar", None)
return [each.session.session_id for each in taken if not each.is_here_already]
"""
    members = crew(4, work, setup)
    for _ in range(3):
        results = members.all()
        assert not [each for each in results if "ok" not in each], results
        assert sorted(name for each in results for name in each["ok"]) == names, "each is taken in by one of them"
        assert content(other) == content(tree)
        shutil.rmtree(other.root)


# Imports an archive; just when `s1` is to get its name, another process makes a session that is called so.
OVERTAKEN = """
import os, subprocess, sys
from agentrun.commands.archiving import take_out
from agentrun.errors import NameTaken
from agentrun.store.tree import Tree
root, path = sys.argv[1:]
MAKE = "import sys; from agentrun.store.tree import Tree; Tree(sys.argv[1], 'ann').create_session(session_id='s1')"
def overtake(event, arguments):
    if event == "os.rename" and arguments[:2] == ("s1", "s1"):
        subprocess.run([sys.executable, "-c", MAKE, root], check=True)
sys.addaudithook(overtake)
try:
    take_out(Tree(root, "ann"), open(path, "rb"), "a.tar", None)
except NameTaken as error:
    print(error.message, error.hint, sep="\\n")
"""


@pytest.mark.slow
def test_a_session_that_another_process_makes_just_then_is_not_replaced_and_the_others_are_in(
    tree: Tree, session: SessionDir, other: Tree, tmp_path: Path
) -> None:
    for each in (tree.create_session(session_id="s0"), session, tree.create_session(session_id="s2")):
        trees.completed(each)
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        pack_all(tree, file)
    argv = [sys.executable, "-c", OVERTAKEN, other.root, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == (
        "s1: another process made a session of that name meanwhile; the other 2 of the archive are in"
    )
    assert "--as ID" in done.stdout
    assert sorted(other.session_ids()) == ["s0", "s1", "s2"]
    assert other.session("s1").run_ids() == [], "it is the one that was made meanwhile"
    assert other.session("s2").run("run-1").report() == "All is well.\n"


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_leaves_nothing(
    tree: Tree, session: SessionDir, other: Tree, request: pytest.FixtureRequest
) -> None:
    trees.completed(session)
    data = packed(tree, session)
    other.create_session(session_id="there")
    before = content(other)
    request.getfixturevalue("small_files")
    with pytest.raises(AgentrunError) as refused, suppress(KeyError):
        unpack(other, data)
    assert refused.value.code == "storage"
    assert content(other) == before
