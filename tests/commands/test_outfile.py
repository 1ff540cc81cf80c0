"""A file that is written for a user is there whole or not at all, and over no other unless that was said."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.commands.outfile import new_file, spool
from agentrun.errors import Denied, NameTaken, NotFound, StorageFailed, UsageError

NOBODY = 65534


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_it_is_not_there_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with new_file(str(path), overwrite=False) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError(28, "full")])
def test_nothing_is_left_of_one_that_was_broken_off(error: type[BaseException] | OSError, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    expected = StorageFailed if isinstance(error, OSError) else error
    with pytest.raises(expected), new_file(str(tmp_path / "a"), overwrite=True) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_what_came_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(NameTaken), new_file(str(path), overwrite=False) as file:  # noqa: PT012
        file.write(b"ours")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]


def test_a_name_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "no" / "a", NotFound), (tmp_path, UsageError), (Path("a\0b"), UsageError)):
        with pytest.raises(error), new_file(str(path), overwrite=True):
            pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "x", "loop/x"])
def test_a_name_that_leads_nowhere_is_no_bug(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UsageError, match=r"ENAMETOOLONG|ELOOP"), new_file(str(tmp_path / name), overwrite=False):
        pass
    assert names(tmp_path) == ["loop"]


def test_a_directory_that_may_not_be_looked_into_is_named() -> None:
    # Not below what pytest made for this user alone: another one would be stopped before.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        Path(place, "closed").mkdir(mode=0)
        path = f"{place}/closed/x"
        with as_nobody(), pytest.raises(Denied, match="closed"), new_file(path, overwrite=False):
            pass


@contextmanager
def as_nobody() -> Iterator[None]:
    """Somebody without root's rights: the caller, if it has none of them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_is_passed_on_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with spool() as file:
        file.write(b"x")
        assert names(tmp_path) == []


def test_a_name_may_be_as_long_as_the_system_has_them(tmp_path: Path) -> None:
    path = tmp_path / ("周报" * 42)
    with new_file(str(path), overwrite=False) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_no_place_for_temporary_files_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "nosuch")])
    with pytest.raises(StorageFailed, match="no place for a temporary file") as refused, spool():
        pass
    assert "TMPDIR" in str(refused.value.hint)
