"""The example's story, played by its own script, and its service alone.

# covers A34 A35 A45 A50 A52 A60 A61 A69 B31 B38
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.conftest import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "export-service"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_story_is_as_told(tmp_path: Path) -> None:
    """Which compares with what the service has counted after each scene."""
    played = subprocess.run(
        [sys.executable, str(EXAMPLE / "play.py")],
        cwd=tmp_path,
        env=os.environ | {"AGENTRUN_ROOT": str(tmp_path / "root")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    runs = {path.parents[2].name: path for path in tmp_path.glob("root/accounts/*/sessions/*/runs/run-1/run.json")}
    ends = [json.loads(path.read_bytes())["status"] for _, path in sorted(runs.items())]
    assert ends == ["completed", "completed", "cancelled", "completed", "cancelled"]
    assert not list(tmp_path.glob("root/accounts/*/resources/*"))


@pytest.fixture
def exports() -> Any:
    return _service().Exports(seconds=0.0, hold=None)


def test_the_same_key_is_the_same_job_and_has_one_effect(exports: Any) -> None:
    job, is_new = exports.start("key-1", "orders")
    again, is_new_again = exports.start("key-1", "orders")
    other, _ = exports.start("key-2", "orders")
    assert (is_new, is_new_again) == (True, False)
    assert job["id"] == again["id"] != other["id"]
    until(lambda: len(exports.effects()["effects"]) == 2, "both jobs done")
    assert exports.effects() == {"asked": ["orders"] * 3, "effects": ["orders"] * 2}
    assert exports.job(job["id"]) == exports.job_of("key-1")
    assert exports.job_of("key-1")["result"] == "orders: 12 rows"


def test_a_job_that_is_cancelled_has_no_effect_and_one_that_is_done_stays_done(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    exports = _service().Exports(seconds=0.0, hold=hold)
    stopped, _ = exports.start("key-1", "orders")
    assert exports.cancel(stopped["id"])["status"] == "cancelled"
    done, _ = exports.start("key-2", "stock")
    hold.unlink()
    until(lambda: exports.job(done["id"])["status"] != "running", "the job done")
    assert exports.cancel(done["id"])["status"] == "succeeded"
    assert exports.effects()["effects"] == ["stock"]
    assert exports.cancel("export-99") is None


def _service() -> ModuleType:
    spec = importlib.util.spec_from_file_location("export_service", EXAMPLE / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
