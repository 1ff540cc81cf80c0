"""What any command makes is its owner's alone from the call that makes it, whatever the umask.

Seen by strace(1): that nothing is made for all to see and closed to them a moment later shows in no file.

# covers A23; promise 14; case C20
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
from typing import Any

import pytest

Home = Any

WHY_NOT = "there is no strace" if shutil.which("strace") is None else None
if WHY_NOT is None and subprocess.run(["strace", "-qqq", "true"], capture_output=True, check=False).returncode:
    WHY_NOT = "strace cannot trace here"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]

# What makes a file, or changes who may have it.
# (A leading ? passes over those that there are not on this machine.)
CALLS = "?open,openat,?creat,?mkdir,mkdirat,?mknod,mknodat,?chmod,fchmod,fchmodat,?link,linkat,?symlink,symlinkat"
# A life with a crash in it: the tool kills its executor. What is printed is of no interest.
SAMPLE = """
agentrun new first --id s1
agentrun send s1 bomb
agentrun recover
agentrun cancel s1 --wait
truncate --no-create --size +9 "$1"/accounts/*/sessions/s1/messages.jsonl
agentrun send s1 say --key k1 --attach notes.md
agentrun export --all --output all.tar
agentrun import all.tar --as s2
"""
# Every other one that writes anything.
REST = """
agentrun send s1 ask
agentrun steer s1 more
agentrun send s1 answer --mode answer --detach
agentrun wait s1
agentrun send s1 ask --detach
agentrun cancel s1 --wait
agentrun show s1 --html page.html
agentrun export s1 --output talk.md
agentrun fork s1
agentrun rename s1 another
agentrun archive s1
agentrun unarchive s1
agentrun compact s1
rm "$1"/accounts/*/sessions/s1/runs/run-2/run.json "$1"/accounts/*/activity.jsonl
agentrun check --repair
agentrun recover
agentrun ls
agentrun search say
agentrun completion bash
agentrun config
agentrun rm s2 --yes
"""


def test_a_life_with_a_crash_in_it(home: Home) -> None:
    _nothing_is_open(home, SAMPLE)


@pytest.mark.exhaustive
def test_every_command(home: Home) -> None:
    _nothing_is_open(home, SAMPLE + REST)


def _nothing_is_open(home: Home, script: str) -> None:
    home.tool("bomb", f"test -e '{home.path}/boom' || {{ touch '{home.path}/boom'; kill -9 $PPID; }}", retries=3)
    home.tool("say", "head -c 200000 /dev/zero")
    home.model(
        *({"ifContains": name, "calls": [{"name": name}]} for name in ("bomb", "say")),
        {"ifContains": "ask", "ask": "which?"},
        *({"text": "a report"} for _ in range(9)),
    )
    (home.path / "notes.md").write_text("the notes")
    trace = home.path / "trace"
    begin = f"umask 000; cd '{home.path}'; agentrun() {{ '{sys.executable}' -m agentrun \"$@\"; }}\n"
    argv = ["strace", "-f", "--seccomp-bpf", "-y", "-qqq", "-s", "4096", "-o", str(trace)]
    argv += ["-e", "signal=none", "-e", f"trace={CALLS}"]
    shell = ["/bin/sh", "-c", begin + script, "sh", str(home.root)]
    done = subprocess.run([*argv, *shell], env=home.env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr, done.stderr
    made = [line for line in trace.read_text().splitlines() if _makes(line) and f"{home.path}/" in _where(line)]
    ours = [line for line in made if not any(f"/{name}" in line for name in ("boom", "trace"))]
    assert len(ours) > 50, done.stderr
    assert [line for line in ours if "chmod" in line] == []
    assert [line for line in ours if not re.search(r"\b0[67]00(\)| <unf)|^\d+ +link", line)] == []
    # And so it stays. Whoever chose a place beside the tree keeps the rights of that place.
    paths = [path for path in home.root.rglob("*") if "scratch" not in path.parts]
    modes = {(path.is_dir(), stat.S_IMODE(path.lstat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert any("torn" in path.name for path in paths)
    assert any(path.parent.name == "attachments" for path in paths)
    assert any(path.parent.name == "blobs" for path in paths)


def _makes(line: str) -> bool:
    """Whether something came of the call that was not there before."""
    return not any(each in line for each in (" = -1 ", " resumed>")) and (
        "O_CREAT" in line or "O_TMPFILE" in line or "open" not in line.split("(")[0]
    )


def _where(line: str) -> str:
    """The path of what was made: as far as it is said, from the directory's descriptor on."""
    found = re.search(r'\((?:(?:AT_FDCWD|\d+)<([^>]*)>, |\d+<([^>]*)>)?(?:"((?:[^"\\]|\\.)*)")?', line)
    assert found is not None, line
    directory, file, name = found.groups()
    return file or (name or "" if (name or "").startswith("/") else f"{directory or ''}/{name or ''}")
