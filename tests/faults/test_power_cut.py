"""The power goes at a system call: what was not synced is gone, what was acknowledged is not.

A file system of its own on a loop device is shut down without a flush of its journal, which is what a power cut leaves:
an ext4 with `noauto_da_alloc` (nothing is written early out of kindness), and an XFS.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import keeping
import pytest
from history import problems
from rig import DONE, SESSION, WAITING, Call, Stage, end_all_below, until
from situations import SITUATIONS, Situation
from system_calls import why_not

# _IOR('X', 125, __u32) of linux/ext4.h and xfs_fs.h, and the flag of both that says not to flush the journal.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
SAMPLE = 3
# Between two of these nothing gets onto the disk. So of all moments in between the one right before the second is the
# hardest: the disk has the same, and no more will have been acknowledged.
LASTING = {"fsync", "fdatasync"}

COMMANDS = ["new", "send", "answer", "steer a waiting run", "cancel a waiting run", "cancel a lost run", "compact"]
SHORT = ["send to a queued run", "cancel a queued run", "reconcile"]
# What these acknowledge has to last as well; where they can be cut off is where the others can.
LONG = ["send with a file", "interrupt a waiting run", "cancel a lost run again", "resume", "repair"]


class Kind(NamedTuple):
    """A file system: how it is made and mounted, and how many MiB it is at least."""

    make: tuple[str, ...]
    options: str
    mebibytes: int


KINDS = {
    "ext4": Kind(("mkfs.ext4", "-q", "-F", "-O", "^resize_inode"), "loop,noauto_da_alloc,commit=300", 32),
    # Smaller ones mkfs.xfs refuses; the file has holes. A copy has the same UUID as what it was made of.
    "xfs": Kind(("mkfs.xfs", "-q", "-f"), "loop,nouuid", 320),
}


class Disk:
    """A file system in a file, mounted at `place`."""

    def __init__(self, base: Path, name: str) -> None:
        self.name = name
        self.kind = KINDS[name]
        self._numbers = itertools.count(1)
        self.image = base / "disk.img"
        self.place = base / "disk"
        self.place.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(self.kind.mebibytes << 20)
        subprocess.run([*self.kind.make, self.image], check=True, capture_output=True)
        self.mount()

    def mount(self) -> None:
        argv = ["mount", "-t", self.name, "-o", self.kind.options, self.image, self.place]
        subprocess.run(argv, check=True, capture_output=True)

    def unmount(self) -> None:
        umount = ["umount", self.place]
        until(lambda: subprocess.run(umount, capture_output=True, check=False).returncode == 0, "nobody uses the disk")

    def cut(self) -> None:
        """Cuts the power, and comes back."""
        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)
        self.unmount()
        self.mount()
        if self._is_dead():
            # Another mount namespace, of a test beside this one, has it as well, and so the same device brings the
            # dead one back. Whatever had got onto the disk is in the file.
            self.unmount()
            before, self.image = self.image, self.image.with_name(f"disk-{next(self._numbers)}.img")
            subprocess.run(["cp", "--sparse=always", before, self.image], check=True)
            before.unlink()
            self.mount()

    def _is_dead(self) -> bool:
        try:
            (self.place / "probe").mkdir()
            (self.place / "probe").rmdir()
        except OSError:
            return True
        return False


def _may_cut() -> str | None:
    if os.geteuid() != 0:
        return "mounting a loop device needs root"
    for tool in ("losetup", "mount"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    found = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    return f"there is no loop device: {found.stderr.decode().strip()}" if found.returncode else why_not()


WHY_NOT = _may_cut()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    program = KINDS[request.param].make[0]
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    if request.param not in Path("/proc/filesystems").read_text().split() and not _can_load(request.param):
        pytest.skip(f"this kernel has no {request.param}")
    disk = Disk(tmp_path, request.param)
    yield disk
    end_all_below(tmp_path)
    disk.unmount()


def _can_load(module: str) -> bool:
    argv = ["modprobe", "-q", module]
    return bool(shutil.which("modprobe")) and subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_acknowledged_is_lost_when_the_power_goes_now_and_then(name: str, tmp_path: Path, disk: Disk) -> None:
    _cut(name, tmp_path, disk, lambda calls: calls[len(calls) // (2 * SAMPLE) :: max(1, len(calls) // SAMPLE)])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", COMMANDS + SHORT)
def test_nothing_acknowledged_is_lost_when_the_power_goes_anywhere(name: str, tmp_path: Path, disk: Disk) -> None:
    _cut(name, tmp_path, disk, lambda calls: calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*COMMANDS, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in SHORT + LONG)]
)
def test_what_a_command_said_lasts_from_its_end_on(name: str, tmp_path: Path, disk: Disk) -> None:
    situation = SITUATIONS[name]
    stage = Stage(tmp_path, root=disk.place / "root")
    situation.set_up(stage)
    _start(stage, situation)
    stage.run(*situation.words, text=situation.text)
    disk.cut()
    assert stage.check(settled=False) == []
    assert situation.after(stage, 0) == []


# What one does with a session as a whole, each upon what the one before it has left. `{base}` is beside the tree.
KEEPING = (
    ("rename", SESSION, "another"),
    ("archive", SESSION),
    ("unarchive", SESSION),
    ("send", SESSION, "quick", "--attach", "{base}/notes.md"),
    ("send", SESSION, "whole"),
    ("cancel", SESSION, "--wait"),
    ("fork", SESSION),
    ("export", SESSION, "--output", "{disk}/talk.tar"),
    ("import", "{disk}/talk.tar", "--as", "s2"),
    ("check", "--repair"),
    ("rm", SESSION, "--yes"),
)
# Hints, which whoever comes by makes again, and what tells only of an executor that is alive.
HINTS = {"activity.jsonl", "lease.json", "run.json", "report.draft.md", "cancel"}


@pytest.mark.slow
def test_what_is_done_with_a_whole_session_lasts_from_the_end_of_the_command_on(tmp_path: Path, disk: Disk) -> None:
    """# case C27: what was removed never comes back"""
    stage = Stage(tmp_path, root=disk.place / "root")
    (tmp_path / "notes.md").write_text("the notes")
    assert stage.run("new", "first", "--id", SESSION).code == DONE
    assert stage.send("quick", "--key", "k1").code == DONE
    (log,) = stage.root.glob("accounts/*/sessions/*/messages.jsonl")
    for words in KEEPING:
        if words[0] == "check":
            for name in (SESSION, "s2"):
                with log.parent.with_name(name).joinpath("messages.jsonl").open("ab") as file:
                    file.write(b'{"seq":99,"sess')
        done = stage.run(*(each.format(base=tmp_path, disk=disk.place) for each in words))
        assert done.code in (DONE, WAITING), (words, done)
        before = _lasting(stage.root)
        disk.cut()
        assert _lasting(stage.root) == before, words
        assert problems(stage.root, settled=False) == [], words
    assert stage.run("show", SESSION).code == 8
    # What the cut left of the files of a removed session is named, and freed.
    assert stage.run("check", "--repair").code == DONE
    assert list(stage.root.glob("accounts/*/sessions/.gone-*")) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", keeping.COMMANDS)
def test_a_whole_session_is_as_it_was_or_as_it_was_to_be_wherever_the_power_goes(
    name: str, tmp_path: Path, disk: Disk
) -> None:
    stage = Stage(tmp_path, root=disk.place / "root")
    keeping.prepare(stage)
    words, wrong = keeping.COMMANDS[name], []
    calls = stage.calls(*words, begin=stage.put_back)
    for trial, call in enumerate(call for call in calls if call.name in LASTING or call is calls[-1]):
        stage.put_back()
        subprocess.run(["sync", "-f", disk.place], check=True)
        before = keeping.sessions(stage)
        done = stage.interrupted(call, "signal=KILL", *words)
        disk.cut()
        faults = keeping.judge(stage, name, before, done.code, by_repair=trial % 2 == 1)
        wrong += [f"cut at {call} ({call.text[:150]}): {each}" for each in faults]
    assert not wrong, "\n".join(wrong)


def _lasting(root: Path) -> dict[str, bytes]:
    """Every file of the sessions that are there, but for what may be lost; and what lies beside the tree."""
    files = [path for path in root.parent.rglob("*") if path.is_file()]
    return {
        str(path): path.read_bytes()
        for path in files
        if path.name not in HINTS and path.parent.name != "keys" and "/." not in str(path.relative_to(root.parent))
    }


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_event_is_told_before_it_lasts(tmp_path: Path, disk: Disk) -> None:
    """An event whose sync is still to come has been told to nobody."""
    _cut("answer", tmp_path, disk, lambda calls: [call for call in calls if _syncs_events(call)])


def _syncs_events(call: Call) -> bool:
    return call.name == "fdatasync" and "operations.jsonl>" in call.text


def _cut(name: str, base: Path, disk: Disk, choose: Callable[[list[Call]], list[Call]]) -> None:
    situation = SITUATIONS[name]
    stage = Stage(base, root=disk.place / "root")
    situation.set_up(stage)
    wrong = []
    calls = stage.calls(*situation.words, begin=lambda: situation.start(stage))
    for trial, call in enumerate(choose([call for call in calls if call.name in LASTING or call is calls[-1]])):
        _start(stage, situation)
        stage.interrupted(call, "signal=KILL", *situation.words, text=situation.text)
        disk.cut()
        wrong += [f"cut at {call} ({call.text[:150]}): {each}" for each in situation.after(stage, trial)]
    assert not wrong, "\n".join(wrong)


def _start(stage: Stage, situation: Situation) -> None:
    """As the situation has it, all of it on the disk."""
    situation.start(stage)
    subprocess.run(["sync", "-f", stage.root.parent], check=True)
