"""What a machine has too little of is told as that, whoever stumbled over it. Covers promise 12."""

import errno
import os

import pytest

from agentrun.commands.doubt import shortage


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/file"), "ENOSPC"),
        (MemoryError(), "ENOMEM"),
        (RuntimeError("can't start new thread"), "EAGAIN"),
        # As dlopen(3) says it.
        (ImportError("/lib/_ctypes.so: failed to map segment from shared object"), "ENOMEM"),
        (ImportError("/lib/_ssl.so: cannot open shared object file: Too many open files"), "EMFILE"),
        (ImportError("libz.so.1: cannot allocate memory: Cannot allocate memory"), "ENOMEM"),
    ],
)
def test_too_little_of_something_is_no_bug(error: Exception, name: str) -> None:
    known = shortage(error)
    assert known is not None
    assert f"({name})" in known.message
    assert known.hint
    with pytest.raises(ValueError, match="foreign") as wrapped:
        raise ValueError("what foreign code makes of it") from error
    assert shortage(wrapped.value) is not None


@pytest.mark.parametrize("error", [ImportError("No module named 'x'"), ValueError("no"), OSError(errno.EAGAIN, "now")])
def test_anything_else_may_be_a_bug(error: Exception) -> None:
    assert shortage(error) is None
