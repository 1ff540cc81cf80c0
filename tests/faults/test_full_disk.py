"""A disk that is really full or really read-only: reading works, writing says so, and goes on once there is room."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from history import runs_of
from rig import CONFLICT, DONE, NOT_OVER, SESSION, WAITING, Done, Stage, end_all_below, until

from agentrun.store.disk import Directory
from agentrun.store.locks import lock_holder

pytestmark = pytest.mark.slow

NOT_FOUND, DENIED, STORAGE = 8, 9, 11
# Bytes that are left on the full disk, so that it is in the way at one place and another.
LEFT = range(0, 64 * 1024, 8 * 1024)
# The same for files: a session and a run need about a dozen.
INODES = 400
FILES_LEFT = (0, 1, 2, 3, 5, 8, 13)


def _may_mount() -> str | None:
    if os.geteuid() != 0:
        return "mounting needs root"
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return f"nothing can be mounted here: {tried.stderr.decode().strip()}" if tried.returncode else None


WHY_NOT = _may_mount() if shutil.which("unshare") else "there is no unshare"
needs_mounts = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def _disk(place: Path, options: str) -> Iterator[Path]:
    """A file system at `place`; it is taken away as soon as nobody uses it: an executor may be about to leave."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
    yield place
    end_all_below(place.parent)  # of a test that failed
    umount = ["umount", place]
    until(lambda: subprocess.run(umount, capture_output=True, check=False).returncode == 0, "nobody uses the disk")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    yield from _disk(tmp_path / "disk", "size=4m")


@needs_mounts
def test_a_full_disk_is_loud_and_loses_nothing_that_was_acknowledged(tmp_path: Path, small_disk: Path) -> None:
    stage = Stage(tmp_path, root=small_disk / "root")
    assert stage.run("new", "--id", SESSION).code == DONE
    refused = 0
    for left in LEFT:
        filler = _fill(small_disk, left)
        for words in (("new",), ("send", SESSION, "whole"), ("cancel", SESSION)):
            done = stage.run(*words)
            assert done.code in (DONE, WAITING, NOT_OVER, CONFLICT, NOT_FOUND, STORAGE), done
            if done.code == STORAGE:
                refused += 1
                _says(done, "ENOSPC", small_disk)
                _says_what_is_kept(done)
        assert stage.run("show", SESSION).code == DONE
        assert stage.run("ls").code == DONE
        assert stage.check(settled=False) == []
        filler.unlink()
        stage.run("cancel", SESSION, "--wait")
        assert stage.send("quick").code == DONE
        assert stage.check(settled=True) == []
    assert refused, "the disk was never full"


@needs_mounts
def test_a_disk_without_inodes_is_loud_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    """There is room for bytes and none for a file: appending works where making a file does not."""
    subprocess.run(["mount", "-o", f"remount,nr_inodes={INODES}", small_disk], check=True)
    stage = Stage(tmp_path, root=small_disk / "root")
    assert stage.run("new", "--id", SESSION).code == DONE
    refused = 0
    for left in FILES_LEFT:
        fillers = _use_up_inodes(small_disk, left)
        for words in (("new",), ("send", SESSION, "whole"), ("cancel", SESSION)):
            done = stage.run(*words)
            assert done.code in (DONE, WAITING, NOT_OVER, CONFLICT, NOT_FOUND, STORAGE), done
            if done.code == STORAGE:
                refused += 1
                assert done.out == "" or words[0] != "new", done
                _says(done, "ENOSPC", small_disk)
        assert stage.run("show", SESSION).code == DONE
        assert stage.check(settled=False) == []
        for filler in fillers:
            filler.unlink()
        stage.run("cancel", SESSION, "--wait")
        assert stage.send("quick").code == DONE
        assert stage.check(settled=True) == []
    assert refused, "there were always inodes left"


@needs_mounts
@pytest.mark.parametrize(
    "words",
    [
        ("new",),
        ("send", SESSION, "quick"),
        ("send", SESSION, "quick", "--detach"),
        ("steer", SESSION, "x"),
        ("cancel", SESSION),
    ],
    ids=" ".join,
)
def test_a_read_only_tree_refuses_before_anything_is_printed(words: tuple[str, ...], tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.run("new", "--id", SESSION).code == DONE
    assert stage.send("whole").code == WAITING
    done = stage.run(*words, before=_read_only(stage.root))
    assert done.code in (DENIED, STORAGE), done
    assert done.out == ""
    _says(done, "EROFS", stage.root)
    assert stage.check(settled=True) == []


@needs_mounts
@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("show", SESSION),
        ("show", f"{SESSION}/1"),
        ("show", SESSION, "--messages"),
        ("show", SESSION, "--operations"),
    ],
    ids=" ".join,
)
def test_a_read_only_tree_can_be_read(words: tuple[str, ...], tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.run("new", "--id", SESSION).code == DONE
    assert stage.send("whole").code == WAITING
    as_ever = stage.run(*words)
    assert stage.run(*words, before=_read_only(stage.root)) == as_ever
    assert as_ever.code == DONE


# covers B63; promise 12
@needs_mounts
def test_a_repair_that_the_disk_refuses_is_said_once_for_each_session(tmp_path: Path, small_disk: Path) -> None:
    stage = Stage(tmp_path, root=small_disk / "root")
    names = (SESSION, "s2")
    for name in names:
        assert stage.run("new", "--id", name).code == DONE
        assert stage.run("send", name, "quick").code == DONE
    logs = sorted(stage.root.glob("accounts/*/sessions/*/messages.jsonl"))
    for log in logs:
        with log.open("ab") as file:
            file.write(b'{"seq":3,"sess')
    # Nothing else is wrong: what is torn needs no attention, and is to be put right all the same.
    assert stage.run("check").code == DONE
    before = [log.read_bytes() for log in logs]
    filler = _fill(small_disk, 0)
    for refused, errno in (
        (stage.run("check", "--repair"), "ENOSPC"),
        (stage.run("check", "--repair", before=_read_only(stage.root)), "EROFS"),
    ):
        assert refused.code == STORAGE, refused
        assert [line["finding"]["repaired"] for line in refused.lines()] == [False, False]
        errors = [json.loads(line)["error"] for line in refused.err.splitlines()]
        assert [error["sessionId"] for error in errors] == list(names)
        assert all(error["code"] == "storage" and errno in error["message"] for error in errors)
        assert all(error["hint"].endswith(f"check {name} --repair") for error, name in zip(errors, names, strict=True))
        assert [log.read_bytes() for log in logs] == before
    filler.unlink()
    repaired = stage.run("check", "--repair")
    assert (repaired.code, repaired.err) == (DONE, "")
    assert [line["finding"]["repaired"] for line in repaired.lines()] == [True, True]


@pytest.mark.parametrize("blocks", [1, 3, 6, 9])
def test_a_limit_in_the_middle_of_a_record_leaves_no_fragment(blocks: int, tmp_path: Path) -> None:
    """The write that meets the limit is short, the next one fails; later there is no limit any more."""
    stage = Stage(tmp_path)
    assert stage.run("new", "--id", SESSION).code == DONE
    limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh"]
    done = stage.run("send", SESSION, "whole", before=limited, text="whole")
    assert done.code == STORAGE, done
    _says(done, "EFBIG", stage.root)
    _says_what_is_kept(done)
    if blocks >= 6:
        assert "is not executed any more" in done.err, "it had begun"
    assert stage.check(settled=False) == []
    assert not list(stage.root.rglob("*.torn-*"))
    stage.run("cancel", SESSION, "--wait")
    assert stage.send("quick").code == DONE
    assert stage.check(settled=True) == []


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for bytes, but for few files."""
    yield from _disk(tmp_path / "other-disk", "size=4m,nr_inodes=100")


# covers A62 A63
@needs_mounts
def test_a_takeover_that_could_not_go_on_is_not_begun(tmp_path: Path, few_files: Path) -> None:
    """An event finds room, its lease does not: each try would take the run's next generation and leave it there."""
    stage = Stage(tmp_path, root=few_files / "root")
    assert stage.run("new", "--id", SESSION).code == DONE
    stage.kill(stage.hold("hold"))
    assert stage.view("run-1")["executor"] == "lost"
    filler = few_files / "filler"
    filler.mkdir()
    with suppress(OSError):
        for number in range(100):
            (filler / str(number)).touch()
    (log,) = stage.root.glob("accounts/*/sessions/*/runs/run-1/operations.jsonl")
    before = log.read_bytes()
    for words in (("recover",), ("recover",), ("resume", SESSION)):
        done = stage.run(*words)
        assert done.code == STORAGE, done
        assert "ENOSPC" in done.err
    assert log.read_bytes() == before
    shutil.rmtree(filler)
    stage.let_go()
    assert stage.run("recover").lines()[0]["outcome"] == "continued"
    assert stage.run("show", "-f", f"{SESSION}/run-1").code == DONE
    leases = [event["payload"] for event in runs_of(stage.root, SESSION)[0].events if "attempt" in event["payload"]]
    assert [each["attempt"] for each in leases if "owner" in each] == [1, 1, 2]
    assert stage.check(settled=True) == []


# covers A58
@needs_mounts
def test_a_lock_on_another_disk_is_nobodys_here(small_disk: Path, few_files: Path) -> None:
    ours, other = (Directory(os.open(disk, os.O_RDONLY), str(disk)) for disk in (small_disk, few_files))
    try:
        assert os.fstat(ours.fd).st_ino == os.fstat(other.fd).st_ino, "else it shows nothing"
        fcntl.flock(other.fd, fcntl.LOCK_EX)
        assert lock_holder(other) == os.getpid()
        assert lock_holder(ours) is None
    finally:
        ours.close()
        other.close()


# covers A58
@needs_mounts
def test_an_executor_that_has_no_room_for_its_lease_is_not_called_frozen(tmp_path: Path, small_disk: Path) -> None:
    stage = Stage(tmp_path, root=small_disk / "root", lease="1s")
    assert stage.run("new", "--id", SESSION).code == DONE
    pid = stage.hold("export")
    until(stage.effects, "its tool is at work, and nothing is left for it to write but its lease")
    filler = _fill(small_disk, 0)
    until(lambda: stage.view("run-1")["executor"] == "frozen", "it cannot renew its lease")
    assert [stage.view("run-1")["late"][name] for name in ("cause", "pid", "keeper")] == ["no_room", pid, None]
    shown = subprocess.run(
        [sys.executable, "-m", "agentrun", "show", SESSION],
        env=stage.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "executor without room on its disk" in shown
    assert "make room, and it goes on by itself" in shown
    assert "agentrun resume" not in shown, "another executor would not have more room"
    filler.unlink()
    until(lambda: stage.view("run-1")["executor"] == "alive", "it goes on by itself")
    stage.let_go()
    assert stage.run("show", "-f", f"{SESSION}/run-1").code == DONE


def _read_only(root: Path) -> list[str]:
    script = f'mount --bind "{root}" "{root}" && mount -o remount,ro,bind "{root}" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh"]


def _fill(disk: Path, left: int) -> Path:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, os.fstat(file.fileno()).st_size - left))
    return filler


def _use_up_inodes(disk: Path, left: int) -> list[Path]:
    fillers = []
    try:
        while True:
            fillers.append(disk / f"filler-{len(fillers)}")
            fillers[-1].touch()
    except OSError:
        fillers.pop()
    for _ in range(left):
        fillers.pop().unlink()
    return fillers


def _says_what_is_kept(done: Done) -> None:
    """Of what was asked, that it may be stored; of a run that had begun, that its record is, and how it goes on."""
    error = json.loads(done.err.splitlines()[-1])["error"]
    run = f"{SESSION}/run-"
    if "is not executed any more" in error["message"]:
        assert "what it recorded is kept; " in error["hint"]
        assert f"agentrun resume {run}" in error["hint"]
        assert f"agentrun cancel {run}" in error["hint"]
        assert error["runId"].startswith("run-")
    elif "has ended" in error["message"]:
        assert f"agentrun show {run}" in error["hint"]
    else:
        assert "may be stored" in error["hint"]
        assert any(way in error["hint"] for way in ("make room", "ulimit -f", "(mount)"))


def _says(done: Done, errno: str, where: Path) -> None:
    error = json.loads(done.err.splitlines()[-1])["error"]
    assert errno in error["message"]
    assert str(where) in error["message"]
