"""`agentrun check` as a user has it: exit codes, both forms of output, and what other commands make of damage.

Covers promises 2 and 17. case C1.
"""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Home


def overwrite_line(path: Path, number: int, *, count: int) -> int:
    """Overwrites the middle of a line with NUL; where that line begins."""
    lines = path.read_bytes().splitlines(keepends=True)
    line = lines[number]
    start = (len(line) - count) // 2
    lines[number] = line[:start] + bytes(count) + line[start + count :]
    path.write_bytes(b"".join(lines))
    return sum(map(len, lines[:number]))


@pytest.mark.slow
def test_a_block_of_nul_in_a_conversation_hides_nothing_but_itself(home: Home) -> None:
    session = home.new()
    for number in range(20):
        sent = home.run("send", session, f"remark {number} " + "x" * 300)
        assert sent.code == 0, sent.said
    path = home.session_dir(session) / "messages.jsonl"
    offset = overwrite_line(path, 20, count=300)

    shown = home.run("show", session, "--messages", "--json")
    assert shown.code == 0
    assert [doc["seq"] for doc in shown.docs] == [seq for seq in range(1, 41) if seq != 21]
    assert shown.said.count("damaged") == 2  # the code word, and the words
    assert f"byte {offset}" in shown.said

    checked = home.run("check", session)
    assert checked.code == 10
    assert checked.text.count("\n") == 1
    assert f"messages.jsonl at byte {offset}: damaged" in checked.text

    # The next request sees what can be read, and the next append works.
    assert home.run("send", session, "and now?").code == 0
    shown = home.run("show", session, "--messages", "--json")
    assert [doc["seq"] for doc in shown.docs][-2:] == [41, 42]
    assert home.run("ls", "--json").docs[0]["changedAt"] == shown.docs[-1]["at"]


@pytest.mark.slow
def test_a_repair_ends_with_0_and_says_what_it_did(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "hello").code == 0
    assert home.run("check").said.endswith(f"nothing is wrong in {home.root}\n")
    overwrite_line(home.session_dir(session) / "messages.jsonl", 0, count=40)
    (home.run_dir(session) / "run.json").unlink()

    found = home.run("check", "--json")
    assert found.code == 10
    kinds = {doc["finding"]["kind"]: doc["finding"] for doc in found.docs}
    assert kinds.keys() == {"damaged", "snapshot"}
    assert kinds["damaged"]["offset"] == 0
    assert kinds["damaged"]["runId"] is None
    assert kinds["snapshot"]["runId"] == "run-1"
    assert found.said == ""

    repaired = home.run("check", session, "--repair")
    assert repaired.code == 0
    assert repaired.text.count("repaired\n") == 2
    assert (home.session_dir(session) / "messages.jsonl.damaged-0").exists()
    again = home.run("check", session)
    assert again.code == 0
    assert "set_aside" in again.text


@pytest.mark.slow
def test_a_conversation_that_is_gone_is_damage_and_not_an_empty_one(home: Home) -> None:
    session, other = home.new(), home.new()
    assert home.run("send", session, "hello").code == 0
    (home.session_dir(session) / "messages.jsonl").unlink()
    for command in (["send", session, "again"], ["show", session], ["show", session, "--messages"], ["check"]):
        result = home.run(*command)
        assert result.code == 10, command
        assert "messages.jsonl" in result.text + result.said
    assert not (home.session_dir(session) / "messages.jsonl").exists()
    listed = home.run("ls")
    assert listed.code == 0
    assert other in listed.text
    assert "is missing" in listed.said


@pytest.mark.slow
def test_what_is_only_a_trace_of_a_crash_is_told_and_is_no_error(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "hello").code == 0
    with (home.session_dir(session) / "messages.jsonl").open("ab") as log:
        log.write(b'{"seq":3')
    (home.session_dir(session) / "mine.txt").touch()
    checked = home.run("check", session)
    assert checked.code == 0
    assert "torn" in checked.text
    assert "orphan" in checked.text
    assert home.run("check", "nosuch").code == 8
    # Somebody who may only read can check.
    os.chmod(home.session_dir(session) / "messages.jsonl", 0o400)
    assert home.run("check", session).code == 0
