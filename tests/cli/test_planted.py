"""What lies in the place of something in one's own account, and may not be opened: told, and nothing else hidden.

Commands run as a user without root's rights here: root opens everything, and is never told EACCES.

# covers promise 2 and 14. case C21.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from shared_root import Shared, shared_root

Home = Any

pytestmark = pytest.mark.slow

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other users")
# A user that nobody has; who is nobody's root already stays himself.
ANN = os.geteuid() or 64001
OTHER = 64002
NOT_OVER, DENIED, DAMAGED = 6, 9, 10


@pytest.fixture
def shared() -> Iterator[Shared]:
    with shared_root() as shared:
        for name in ("well", "bad"):
            assert shared.run(ANN, "new", "--id", name).returncode == 0
            assert shared.run(ANN, "send", name, "ask me").returncode == 5
        yield shared


@pytest.mark.parametrize("kind", ["closed", pytest.param("foreign", marks=AS_ROOT)])
def test_a_session_that_may_not_be_opened_hides_no_other(kind: str, shared: Shared) -> None:
    (account,) = (shared.root / "accounts").iterdir()
    bad = account / "sessions" / "bad"
    bad.chmod(0) if kind == "closed" else os.chown(bad, OTHER, OTHER)
    try:
        for words, code in (
            (["ls"], 0), (["search", "ask"], 0), (["check"], DAMAGED), (["recover", "--dry-run"], NOT_OVER),
            (["recover"], NOT_OVER), (["send", "well", "more", "--if-busy", "queue", "--detach"], 0), (["new"], 0),
        ):  # fmt: skip
            done = shared.run(ANN, *words)
            assert done.returncode == code, (words, done)
            if words[0] in ("ls", "search"):
                assert b"well" in done.stdout
            if words[0] not in ("send", "new"):
                assert b"sessions/bad" in done.stdout + done.stderr, (words, done)
    finally:
        bad.chmod(0o700)


@pytest.mark.parametrize("kind", ["directory", "closed", pytest.param("foreign", marks=AS_ROOT)])
def test_the_list_of_activity_keeps_nobody_from_anything(kind: str, shared: Shared) -> None:
    (account,) = (shared.root / "accounts").iterdir()
    path = account / "activity.jsonl"
    match kind:
        case "directory":
            path.unlink()
            path.mkdir()
        case "closed":
            path.chmod(0)
        case "foreign":
            os.chown(path, OTHER, OTHER)
    if kind == "directory":
        os.chown(path, ANN, ANN)
    for words, code in (
        (["send", "well", "more", "--if-busy", "queue", "--detach"], 0), (["ls"], 0), (["show", "@last"], 0),
        (["search", "ask"], 0), (["recover"], 0), (["check"], DAMAGED), (["check", "--repair"], 0), (["check"], 0),
        (["new", "--id", "later"], 0),
    ):  # fmt: skip
        done = shared.run(ANN, *words)
        assert done.returncode == code, (words, done)
        if words == ["show", "@last"]:
            assert b"well" in done.stdout
    assert (account / "activity.jsonl.damaged-0").exists()
    assert path.is_file()


@pytest.mark.parametrize("name", ["resources", "shared", "resources/x"])
@pytest.mark.parametrize("kind", ["symlink", "file", "fifo", pytest.param("foreign", marks=AS_ROOT)])
def test_what_lies_in_the_place_of_what_sessions_share_is_found(kind: str, name: str, shared: Shared) -> None:
    if kind == "file" and name == "resources/x":
        return  # a claim is one
    (account,) = (shared.root / "accounts").iterdir()
    path = account / name
    if path.parent != account:
        path.parent.mkdir(0o700)
        os.chown(path.parent, ANN, ANN)
    match kind:
        case "symlink":
            path.symlink_to("/tmp")
        case "fifo":
            os.mkfifo(path)
        case "file":
            path.touch()
        case "foreign":
            path.mkdir()
            os.chown(path, OTHER, OTHER)
    if kind != "foreign":
        os.chown(path, ANN, ANN, follow_symlinks=False)
    for words in (["check"], ["check", "--repair"]):
        done = shared.run(ANN, *words)
        assert done.returncode == DAMAGED, done
        assert done.stdout.startswith(f"{path}: unreadable: ".encode()), done
    assert os.path.lexists(path)


# What is there of an account whose making was cut off, or that somebody has begun by hand: a name and a mode.
HALF_MADE = {
    "nothing": (),
    "its directory": (("", 0o700),),
    "its directory, for all to see": (("", 0o755),),
    "no session yet": (("", 0o700), ("sessions", 0o700)),
    "a session that is empty": (("", 0o700), ("sessions", 0o700), ("sessions/half", 0o700)),
    "a session that was being made": (("", 0o700), ("sessions", 0o700), ("sessions/.new-half", 0o700)),
}


@pytest.mark.parametrize("name", HALF_MADE)
def test_an_account_that_is_half_made_is_used_and_private(name: str, shared: Shared) -> None:
    dora = 64004 if os.geteuid() == 0 else ANN
    account = shared.account(dora)
    if dora == ANN:
        pytest.skip("only root may become a user who has no account yet")
    for part, mode in HALF_MADE[name]:
        (account / part).mkdir()
        (account / part).chmod(mode)
        os.chown(account / part, dora, dora)
    # A session that is none is told of, and hides none.
    left = NOT_OVER if "empty" in name else 0
    for words, code in (
        (["ls"], 0), (["recover"], left), (["new", "--id", "mine"], 0), (["send", "mine", "x"], 0),
        (["show", "@last"], 0), (["ls"], 0), (["recover"], left),
    ):  # fmt: skip
        done = shared.run(dora, *words)
        assert done.returncode == code, (words, done)
    done = shared.run(dora, "check")
    assert (done.returncode, b"sessions/half" in done.stdout) == ((DAMAGED, True) if left else (0, False)), done
    assert shared.run(ANN, "show", "mine").returncode == 8
    mine = [account / "sessions", *(account / "sessions" / "mine").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in mine} == {0}


@AS_ROOT
def test_sessions_in_somebody_else_s_hands_are_said_to_be_and_how_they_are_had_back(shared: Shared) -> None:
    (account,) = (shared.root / "accounts").iterdir()
    os.chown(account / "sessions", OTHER, OTHER)
    for each in ("ls", "check", "show well", "recover", "new"):
        done = shared.run(ANN, *each.split())
        assert (done.returncode, done.stdout) == (DENIED, b""), (each, done)
        assert f"chown -hR {ANN} {account}/sessions".encode() in done.stderr, (each, done)


@AS_ROOT
@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo", "file"])
def test_one_s_own_account_in_somebody_else_s_hands_is_not_an_empty_one(kind: str, shared: Shared) -> None:
    """Under a root for all users whoever comes first can put something in another's name."""
    CAROL = 64003
    path = shared.account(CAROL)
    match kind:
        case "directory":
            path.mkdir(0o777)
        case "symlink":
            path.symlink_to(shared.account(ANN))
        case "fifo":
            os.mkfifo(path)
        case "file":
            path.touch()
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    commands = "ls,check,check --repair,show x,show @last,recover,recover --watch,search q,new"
    for each in commands.split(","):
        done = shared.run(CAROL, *each.split())
        assert (done.returncode, done.stdout) == (DENIED, b""), (each, done)
        assert str(path).encode() in done.stderr
        assert (b"chown" if kind == "directory" else b"rm ") in done.stderr
    # To everybody else it is as if it were not there.
    listed = shared.run(ANN, "ls", "--account", f"uid-{CAROL}")
    assert (listed.returncode, listed.stdout) == (0, b"")


def test_a_tree_that_was_copied_with_hard_links_says_how_to_part_the_two(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "one").code == 0
    subprocess.run(["cp", "-al", home.root, home.path / "copy"], check=True)
    refused = home.run("send", session, "two")
    assert refused.code == 9
    command = refused.said.splitlines()[-1].strip()
    assert command.startswith("find "), refused.said
    subprocess.run(command, shell=True, check=True)
    assert home.run("send", session, "two").code == 0
    assert len(home.messages(session)) == 4
    copied = home.path / "copy" / home.session_dir(session).relative_to(home.root)
    assert (copied / "messages.jsonl").read_bytes().count(b"\n") == 2
