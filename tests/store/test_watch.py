"""Waiting for a change wakes at once when there is one, and looks again by itself when there is none.

Covers A41, A58 and promise 7.
"""

import gc
import os
import threading
import time
from pathlib import Path

import pytest

from agentrun.store.disk import Directory
from agentrun.store.watch import Watch


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    watch = Watch(Directory.root(str(tmp_path)))
    if watch.fd is None:
        pytest.skip("the kernel says nothing about changes here")
    return watch


def test_each_kind_of_change_is_reported(watch: Watch, tmp_path: Path) -> None:
    log = tmp_path / "operations.jsonl"

    def append() -> None:
        with log.open("a") as file:
            file.write("x\n")

    for change in (
        append, append, (tmp_path / "cancel").touch, lambda: os.replace(log, tmp_path / "other"),
        (tmp_path / "cancel").unlink,
    ):  # fmt: skip
        change()
        assert watch.wait(30)
        assert not watch.wait(0)
    watch.close()


def test_a_change_wakes_who_waits(watch: Watch, tmp_path: Path) -> None:
    change = threading.Timer(0.02, (tmp_path / "cancel").touch)
    change.start()
    # Without a change it would look again after a second; some of these have to be woken by it.
    woken = [watch.wait(30) for _ in range(2)]
    assert woken[0]
    change.join()
    watch.close()


def test_who_waits_looks_again_though_nothing_is_reported(watch: Watch) -> None:
    assert not watch.wait(0.01)
    assert 0 < watch.patience <= 1
    watch.close()
    watch.close()


def test_without_kernel_events_there_is_a_pace_to_look_at(tmp_path: Path) -> None:
    closed = Directory.root(str(tmp_path))
    watch = Watch(closed)
    watch.close()
    assert watch.fd is None
    assert 0 < watch.patience < 1
    assert not watch.wait(0.01)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed here only")
def test_watching_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        Watch(directory).close()
    # The kernel takes its time to let the last of them go. Handles of other tests may be collected meanwhile, so there
    # may be fewer.
    patience = time.monotonic() + 20
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < patience
