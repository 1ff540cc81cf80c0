"""Whose processes are whose, where one tree has several paths and one path leads to several trees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from agentrun.adapters.process.marks import carries, mark_of

# A file system of its own, in which $2 is what is $1 elsewhere (mount_namespaces(7)).
ELSEWHERE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && exec cat', "sh"]
Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts what stays until the test is over, and returns its pid when it is what it is to be."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(environment: Mapping[str, str], argv: Sequence[str] = ("cat",)) -> int:
        env = {"PATH": os.environ["PATH"]} | dict(environment)
        one = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started.append(one)
        assert one.stdin is not None
        assert one.stdout is not None
        try:
            one.stdin.write(b"x")
            one.stdin.flush()
        except BrokenPipeError:
            pass
        if one.stdout.read(1) != b"x":
            pytest.skip("no file system of one's own here")
        return one.pid

    yield begin
    for one in started:
        with one:
            one.kill()


def names(root: Path) -> dict[str, str]:
    """What a run's tools have in their environment."""
    return {"AGENTRUN_ROOT": str(root), "AGENTRUN_SESSION": "s1", "AGENTRUN_RUN": "run-1"}


def test_a_tree_is_known_by_where_its_path_leads(start: Start, tmp_path: Path) -> None:
    # covers A43 A51
    tree, copy, link = tmp_path / "tree", tmp_path / "copy", tmp_path / "link"
    tree.mkdir()
    copy.mkdir()
    link.symlink_to(tree)
    pid = start(names(tree))
    assert carries(pid, mark_of(names(tree)))
    assert carries(pid, mark_of(names(link)))
    assert not carries(pid, mark_of(names(copy))), "its own tree is there, and another one"
    assert not carries(pid, mark_of(names(tree) | {"AGENTRUN_RUN": "run-2"}))
    assert not carries(start({}), mark_of(names(tree)))
    tree.rename(tmp_path / "moved")
    assert carries(pid, mark_of(names(tmp_path / "moved")))
    assert carries(pid, mark_of(names(tree))), "whoever began before it was moved knows the old path"
    tree.mkdir()
    assert not carries(pid, mark_of(names(tmp_path / "moved") | {"AGENTRUN_SESSION": "s2"}))


def test_a_container_has_paths_of_its_own(start: Start, tmp_path: Path) -> None:
    # covers A43 A51
    ours, theirs, inside = tmp_path / "ours", tmp_path / "theirs", tmp_path / "inside"
    for each in (ours, theirs, inside):
        each.mkdir()
    same = start(names(inside), [*ELSEWHERE, str(ours), str(inside)])
    assert carries(same, mark_of(names(ours))), "the tree is mounted there under another path"
    other = start(names(ours), [*ELSEWHERE, str(theirs), str(ours)])
    assert not carries(other, mark_of(names(ours))), "another tree is mounted there under the same path"
    assert carries(other, mark_of(names(theirs)))


# covers A43
def test_what_was_put_in_place_of_its_tree_does_not_hide_a_process(start: Start, tmp_path: Path) -> None:
    tree, inside = tmp_path / "tree", "sessions/s1/run-1"
    (tree / inside).mkdir(parents=True)
    pid = start(names(tree))
    tree.rename(tmp_path / "moved")
    ours = mark_of(names(tmp_path / "moved"), inside)
    tree.mkdir()
    assert carries(pid, ours), "nothing of that name is there"
    (tree / inside).mkdir(parents=True)
    assert not carries(pid, ours), "it may be of that one"
