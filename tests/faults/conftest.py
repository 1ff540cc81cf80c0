"""Makes the helpers of this folder importable, and puts the trees of most tests into memory.

pytest's importlib mode puts no folder of tests on the path.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# What a kill leaves is the same on any file system; waiting for a disk thousands of times shows nothing more. A power
# cut has a file system of its own, whose image may lie anywhere. All other tests of this folder stay on the disk.
IN_MEMORY = {
    "test_cancel_anywhere",
    "test_errors",
    "test_executors_lock",
    "test_kill",
    "test_power_cut",
    "test_sessions",
}
MEMORY = Path("/dev/shm")
ROOM = 1 << 30


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: a worker that begins it last lets all others wait."""
    items.sort(key=lambda item: item.get_closest_marker("soak") is None)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A place of the test's own; whoever still works on a tree there when the test is over is ended."""
    from rig import end_all_below

    if request.path.stem not in IN_MEMORY or not _has_room():
        yield tmp_path
        end_all_below(tmp_path)
        return
    with tempfile.TemporaryDirectory(prefix="agentrun-faults-", dir=MEMORY) as name:
        yield Path(name)
        end_all_below(Path(name))


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    room = os.statvfs(MEMORY)
    return room.f_bavail * room.f_frsize > ROOM
