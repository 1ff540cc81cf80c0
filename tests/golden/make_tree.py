"""Makes the golden tree of the current format version: `python tests/golden/make_tree.py`.

Once for each format version, when it is released; never again. A tree that is there is not touched: code that comes
later has to read it as it is.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent / "faults")]

from rig import DONE, WAITING, Stage  # noqa: E402 - the folders of tests are on no path

from agentrun.records.codec import FORMAT_VERSION  # noqa: E402

# What `show` and its like said of the tree when it was made; the test asks the same.
QUESTIONS = (
    "ls --archived", "show history", "show history --messages --tail 100", "show open", "show open/1", "show shelved",
    "show open --messages --tail 100",
    *(f"show history/{number}" for number in range(1, 6)),
    *(f"show history/{number} --operations --since 0" for number in range(1, 6)),
)  # fmt: skip


def main() -> None:
    """Makes the tree and its expectations."""
    target = HERE / f"format-{FORMAT_VERSION}"
    if target.exists():
        sys.exit(f"{target} is there, and stays as it is")
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage(Path(directory))
        _live(stage)
        expected = {words: [_anonymous(line, stage) for line in _said(stage, words)] for words in QUESTIONS}
        shutil.copytree(stage.root / "accounts" / getpass.getuser(), target / "root" / "accounts" / "ann")
        for path in target.rglob("*"):
            if path.is_file():
                path.write_text(_anonymous(path.read_text("utf-8"), stage), "utf-8")
    (target / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _live(stage: Stage) -> None:
    """One of everything that a tree can hold."""
    (stage.base / "notes.md").write_text("Only the evening counts.\n")
    _done(stage.run("new", "The evening's figures", "--id", "history"))
    _done(stage.run("send", "history", "the whole evening"), WAITING)
    _done(stage.run("send", "history", "week 12"))
    stage.let_go()
    _done(stage.run("send", "history", "a doomed one"), 1)
    (stage.base / "go").unlink()
    _done(stage.run("send", "history", "export it", "--detach"))
    _wait_for_effect(stage)
    _done(stage.run("send", "history", "and also the last 7 days", "--mode", "follow-up", "--detach", "--key", "k1"))
    _done(stage.run("steer", "history", "only new products", "--key", "k2"))
    _done(stage.run("cancel", "history", "--wait", "--reason", "it takes too long"))
    _done(stage.run("send", "history", "brief me", "--key", "k3", "--ref", "run-1", "--attach", "notes.md"))
    _done(stage.run("compact", "history"))
    _done(stage.run("fork", "history"))
    _done(stage.run("new", "A question", "--id", "open"))
    _done(stage.run("send", "open", "the whole week"), WAITING)
    _done(stage.run("new", "Set aside", "--id", "shelved"))
    _done(stage.run("archive", "shelved"))


def _wait_for_effect(stage: Stage) -> None:
    from rig import until

    until(lambda: any("run-3" in line for line in stage.effects()), "the export has begun")


def _done(done: object, code: int = DONE) -> None:
    assert getattr(done, "code", None) == code, done


def _said(stage: Stage, words: str) -> list[str]:
    done = stage.run(*words.split())
    _done(done)
    return done.out.splitlines()


def _anonymous(text: str, stage: Stage) -> str:
    """As if Ann had made it, on her machine."""
    text = text.replace(str(stage.base), "/home/ann").replace(str(stage.base.resolve()), "/home/ann")
    text = text.replace(f'"{getpass.getuser()}"', '"ann"').replace(f'"{os.uname().nodename}"', '"tea"')
    text = re.sub(r'"bootId": ?"[^"]*"', '"bootId":"00000000-0000-0000-0000-000000000000"', text)
    return re.sub(r"/accounts/[^/\"]+/", "/accounts/ann/", text)


if __name__ == "__main__":
    main()
