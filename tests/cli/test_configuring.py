"""`agents` and `config`: what is configured, where it comes from, whether it works, and that no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SECRET = "sk-this-is-nobodys-business"
CONFIG = f"""
default_agent = "good"
lease = "20s"
grace = "2s"

[agents.good]
model = "scripted:script.json"
tools = ["look"]

[agents.keyed]
model = "openai:m"
base_url = "http://ann:{SECRET}@127.0.0.1:9/v1"
api_key_command = ["sh", "-c", "echo {SECRET}"]
max_turns = 3

[agents.broken]
kind = "no-such-plug-in"
settings = {{ api_key = "{SECRET}", shown = "yes" }}

[agents.outside]
kind = "command"
command = ["no-such-program", "--token", "{SECRET}", "--password={SECRET}", "--mode=fast"]

[tools.look]
argv = ["cat", "--api-key={SECRET}"]
effect = "read"
"""


@pytest.fixture
def configured(home: Any) -> Any:
    home.model({"text": "x"})
    home.config.write_text(CONFIG)
    return home


def test_what_is_configured_and_where_it_comes_from(configured: Any) -> None:
    settings = {each["name"]: each for each in configured.run("config", "--json").docs[0]["settings"]}
    assert settings["root"]["value"] == str(configured.root)
    assert settings["root"]["from"] == "$AGENTRUN_ROOT"
    assert settings["config"]["from"] == "$AGENTRUN_CONFIG"
    assert settings["lease"] == {"name": "lease", "value": "20s", "from": str(configured.config)}
    assert settings["max_attempts"] == {"name": "max_attempts", "value": 3, "from": "default"}
    assert settings["agents.keyed.max_turns"]["value"] == 3
    assert settings["tools.look.grace"] == {"name": "tools.look.grace", "value": "2s", "from": str(configured.config)}
    assert settings["tools.look.kill_timeout"]["from"] == "default"
    assert settings["agents.good.max_turns"] == {"name": "agents.good.max_turns", "value": 50, "from": "default"}
    assert settings["agents.outside.command"]["value"][-1] == "--mode=fast"
    named = {
        each["name"]: each
        for each in configured.run("config", "--json", "--root", str(configured.root)).docs[0]["settings"]
    }
    assert named["root"]["from"] == "--root"


@pytest.mark.parametrize(
    "command", [("config",), ("agents",), ("agents", "check", "keyed"), ("agents", "check", "outside")]
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_secret_is_shown(configured: Any, command: tuple[str, ...], form: tuple[str, ...]) -> None:
    """# promise 15"""
    result = configured.run(*command, *form)
    assert result.out
    assert SECRET not in result.said + result.text


def test_the_agents_there_are_and_what_is_wrong_with_them(configured: Any) -> None:
    rows = {row["name"]: row for row in configured.run("agents", "--json").docs}
    assert rows["good"]["default"]
    assert rows["good"]["problem"] is None
    assert "there is no 'no-such-plug-in'" in rows["broken"]["problem"]
    assert "* good" in configured.run("agents").text


def test_a_check_says_what_works_and_what_does_not(configured: Any) -> None:
    good = configured.run("agents", "check", "good")
    assert good.code == 0
    assert "ok   tool look: cat" in good.text
    outside = configured.run("agents", "check", "outside")
    assert outside.code == 13
    assert "NOT  command: no-such-program" in outside.text
    assert configured.run("agents", "check", "broken").code == 13
    assert configured.run("agents", "check", "nobody").code == 13
    assert configured.run("agents", "chekc", "good").code == 2


def test_a_check_asks_the_endpoint(configured: Any) -> None:
    pytest.importorskip("openai", reason="the extra 'openai' is not installed")
    # Port 9 is the discard service, which nobody runs: there is no connection.
    findings = configured.run("agents", "check", "keyed", "--json").docs
    assert findings[-1]["what"] == "model openai:m"
    assert "the connection to http://[redacted]@127.0.0.1:9/v1 failed" in findings[-1]["error"]


def test_a_file_in_the_working_directory_is_never_obeyed_unasked(home: Any, tmp_path: Path) -> None:
    """# covers A22: whoever sends a directory must not get to say what is run in it."""
    here = tmp_path / "downloaded"
    here.mkdir()
    (here / "script.json").write_text(json.dumps({"turns": [{"text": "obeyed"}]}))
    (here / "agentrun.toml").write_text('[agents.evil]\nmodel = "scripted:script.json"\n')
    environment = {"AGENTRUN_CONFIG": ""}
    session = home.new()
    assert home.run("send", session, "x", "--agent", "evil", env=environment, cwd=here).code == 13
    assert "evil" not in home.run("agents", env=environment, cwd=here).text
    listed = home.run("config", "--json", env=environment, cwd=here).docs[0]["settings"]
    assert str(here) not in json.dumps(listed)
    named = str(here / "agentrun.toml")
    assert home.run("send", session, "x", "--config", named, env=environment, cwd=here).text.strip() == "obeyed"


def test_what_nobody_wrote_is_told_as_it_would_be_written(home: Any) -> None:
    told = home.run("config").text
    assert 'lease = "15s"    # default\n' in told
    assert "default_agent = none    # default\n" in told
    assert 'request_timeout = "5m"' in told
