"""The configuration: all keys of the documented example, and what is said about everything else."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from agentrun.adapters.models.script import load_turns
from agentrun.config import AgentConfig, Config, McpConfig, ToolConfig, keys, load_config, parse_duration
from agentrun.config.durations import written
from agentrun.errors import EXIT_CODES, ConfigError, UsageError

EXAMPLE = """
default_agent = "analyst"
lease = "15s"
max_attempts = 3

[agents.analyst]
kind = "loop"
model = "openai:gpt-5"
base_url = "http://127.0.0.1:8080/v1"
api_key_env = "OPENAI_API_KEY"
system = "You are a careful analyst."
tools = ["query_sales", "export_rows", "mcp:files"]
checks = [["python3", "check_report.py"]]
max_turns = 50
max_tool_calls = 200
max_tokens = 200000
timeout = "30m"
answer_timeout = "7d"
compact_above_tokens = 100000

[tools.query_sales]
argv = ["python3", "query.py"]
description = "Run one read-only SQL query over last night's orders."
parameters = { type = "object", properties = { sql = { type = "string" } }, required = ["sql"] }
effect = "read"
timeout = "30s"
retries = 2

[tools.export_rows]
argv = ["./export.sh"]
effect = "write"
approve = "ask"
resource = "warehouse-export"
probe = ["./export-status.sh"]
cancel = ["./export-cancel.sh"]
grace = "5s"

[mcp.files]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "."]

[agents.coder]
kind = "acp"
command = ["opencode", "acp"]

[agents.cli]
kind = "command"
command = ["llm", "-m", "local"]
"""
LOOP = '[agents.a]\nmodel = "local"\n'


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "agentrun.toml"
    path.write_text(text)
    return load_config(str(path))


def test_the_documented_example_is_read_whole(tmp_path: Path) -> None:
    config = loaded(tmp_path, EXAMPLE)
    assert config.path == str(tmp_path / "agentrun.toml")
    assert config.directory == str(tmp_path)
    assert config.sha256 == hashlib.sha256(EXAMPLE.encode()).hexdigest()
    assert (config.default_agent, config.lease, config.max_attempts) == ("analyst", 15.0, 3)
    assert config.agent(None) == AgentConfig(
        "analyst",
        model="openai:gpt-5",
        base_url="http://127.0.0.1:8080/v1",
        api_key_env="OPENAI_API_KEY",
        system="You are a careful analyst.",
        tools=("query_sales", "export_rows", "mcp:files"),
        checks=(("python3", "check_report.py"),),
        max_tokens=200000,
        timeout=1800.0,
        answer_timeout=604800.0,
        compact_above_tokens=100000,
    )
    assert config.agent("coder") == AgentConfig("coder", kind="acp", command=("opencode", "acp"))
    assert config.agent("cli") == AgentConfig("cli", kind="command", command=("llm", "-m", "local"))
    assert config.tool("query_sales").parameters["required"] == ["sql"]
    assert config.tool("query_sales")._replace(parameters={}) == ToolConfig(
        "query_sales",
        ("python3", "query.py"),
        "Run one read-only SQL query over last night's orders.",
        {},
        effect="read",
        approve="auto",
        timeout=30.0,
        retries=2,
    )
    assert config.tool("export_rows") == ToolConfig(
        "export_rows",
        ("./export.sh",),
        resource="warehouse-export",
        probe=("./export-status.sh",),
        cancel=("./export-cancel.sh",),
    )
    files = McpConfig("files", "npx", ("-y", "@modelcontextprotocol/server-filesystem", "."))
    assert config.mcp == {"files": files}


@pytest.mark.parametrize(
    ("values", "table"),
    [
        (Config, "TOP"),
        (AgentConfig, "ANY_KIND LOOP OUTSIDE COMMAND"),
        (ToolConfig, "TOOL"),
        (McpConfig, "MCP"),
    ],
)
def test_each_field_has_its_key(values: type[tuple[object, ...]], table: str) -> None:
    fields = set(values._fields) - {"name", "path", "sha256"}  # type: ignore[attr-defined]
    assert {key for part in table.split() for key in getattr(keys, part)} == fields


@pytest.mark.parametrize(
    ("effect", "approve", "expected"),
    [(None, None, "ask"), ("write", None, "ask"), ("read", None, "auto"), ("read", "ask", "ask")],
)
def test_writes_are_asked_for_unless_told_otherwise(
    tmp_path: Path, effect: str | None, approve: str | None, expected: str
) -> None:
    keys = {"effect": effect, "approve": approve}
    lines = [f'{key} = "{value}"' for key, value in keys.items() if value]
    config = loaded(tmp_path, "\n".join(['[tools.t]\nargv = ["x"]', *lines]))
    assert (config.tool("t").effect, config.tool("t").approve) == (effect or "write", expected)


def test_what_processes_are_given_when_they_are_ended_is_said_for_all_or_for_one(tmp_path: Path) -> None:
    tools = "[tools.a]\nargv = ['x']\n[tools.b]\nargv = ['x']\ngrace = '1m'\nkill_timeout = '2s'\n"
    config = loaded(tmp_path, tools)
    assert [config.patience, _ending(config, "a"), _ending(config, "b")] == [(5.0, 5.0), (5.0, 5.0), (60.0, 2.0)]
    config = loaded(tmp_path, "grace = '0s'\nkill_timeout = '500ms'\n" + tools)
    assert [config.patience, _ending(config, "a"), _ending(config, "b")] == [(0.0, 0.5), (0.0, 0.5), (60.0, 2.0)]


def _ending(config: Config, tool: str) -> tuple[float, float]:
    return config.tool(tool).grace, config.tool(tool).kill_timeout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("defualt_agent = 'x'", "agentrun.toml has no key 'defualt_agent'; did you mean 'default_agent'?"),
        ("zzz = 1", "has no key 'zzz'; it may have: default_agent, lease, max_attempts, max_depth, grace"),
        (LOOP + "max_turn = 1", "agentrun.toml: [agents.a] has no key 'max_turn'; did you mean 'max_turns'?"),
        ("[tools.t]\nargv = ['x']\nretrys = 1", "[tools.t] has no key 'retrys'; did you mean 'retries'?"),
        ("[mcp.m]\ncommand = 'x'\narg = []", "[mcp.m] has no key 'arg'; did you mean 'args'?"),
        ("agents = 4", "agents must be a table, not 4"),
        ("[agents]\na = 4", "[agents.a] must be a table, not 4"),
        (LOOP + "max_turns = true", "[agents.a] max_turns must be a whole number of at least 1, not True"),
        (LOOP + "max_turns = 0", "max_turns must be a whole number of at least 1, not 0"),
        (LOOP + "timeout = 30", "[agents.a] timeout must be a duration such as"),
        (LOOP + "timeout = '30'", "[agents.a] timeout must be a duration such as"),
        (LOOP + "timeout = '0s'", "timeout must be a duration of at least 0.001 s"),
        ("lease = '50ms'", "lease must be a duration of at least 0.1 s"),
        ("kill_timeout = '1m'", "kill_timeout must be a duration of at most 30 s"),
        (
            "[tools.t]\nargv = ['x']\nkill_timeout = '1ms'",
            "[tools.t] kill_timeout must be a duration of at least 0.1 s",
        ),
        ("[tools.t]\nkind = 'clock'\nkill_timeout = '1s'", "for which kill_timeout has no effect"),
        (LOOP + "system = 4", "[agents.a] system must be text, not 4"),
        (LOOP + "tools = 'x'", "[agents.a] tools must be a list of texts, not 'x'"),
        (LOOP + "checks = ['x']", "[agents.a] checks must be a list of commands"),
        ("[agents.a]\nmodel = ''", "[agents.a] model must be text that is not empty"),
        ("[agents.a]\nkind = 'lop'\nmodel = 'x'", 'is of kind "lop", a plug-in\'s, for which model has no effect; did'),
        ("[agents.a]\nkind = 'acp'\ncommand = ['x']\nsettings = {}", "for which settings has no effect"),
        ("[tools.t]\nkind = 'clok'\nargv = ['x']", 'is of kind "clok", a plug-in\'s, for which argv has no effect'),
        ("[tools.t]\nargv = ['x']\nsettings = {}", "for which settings has no effect"),
        ("[agents.a]\nkind = 'acp'", '[agents.a] is of kind "acp" and needs command'),
        ("[agents.a]", '[agents.a] is of kind "loop" and needs model'),
        (LOOP + "command = ['x']", 'is of kind "loop", for which command has no effect'),
        (LOOP + "effect = 'read'", 'is of kind "loop", for which effect has no effect'),
        ("[agents.a]\nkind = 'acp'\ncommand = ['x']\nresume = ['x']", "for which resume has no effect"),
        ("[agents.a]\nkind = 'command'\ncommand = ['x']\nsystem = 'x'", "for which system has no effect"),
        (LOOP + "api_key_env = 'A'\napi_key_command = ['x']", "has both api_key_env and api_key_command"),
        ("[tools.t]\neffect = 'read'", "[tools.t] needs argv"),
        ("[tools.t]\nargv = []", "[tools.t] argv must be a command as a list of texts"),
        ("[tools.t]\nargv = 'x'", "[tools.t] argv must be a command as a list of texts"),
        ('[tools.t]\nargv = ["x", "a\\u0000b"]', "[tools.t] argv must be a command as a list of texts"),
        ("[tools.t]\nargv = ['x']\neffect = 'both'", '[tools.t] effect must be "read" or "write"'),
        (
            "[tools.t]\nargv = ['x']\nparameters = {a = 2020-01-01}",
            "[tools.t] parameters must be a table in JSON's terms",
        ),
        ("[tools.t]\nargv = ['x']\nparameters = {a = [inf]}", "[tools.t] parameters must be a table in JSON's terms"),
        ("[tools.'a b']\nargv = ['x']", "is no name for a tool"),
        ("[mcp.m]\nargs = []", "[mcp.m] needs either command, the program that it runs, or url"),
        ("[mcp.m]\nurl = 'http://x'\nargs = []", "[mcp.m] has url, for which args has no effect"),
        ("[mcp.m]\ncommand = 'x'\nheaders = {}", "[mcp.m] has command, for which headers has no effect"),
        ("[mcp.m]\ncommand = 'x'\nenv = {A = 1}", "[mcp.m] env must be a table of texts"),
        (
            LOOP + "tools = ['q']\n[tools.query]\nargv=['x']",
            "[agents.a] tools names 'q', which is not configured",
        ),
        (LOOP + "tools = ['quer']\n[tools.query]\nargv=['x']", "did you mean 'query'?"),
        (LOOP + "tools = ['mcp:files']", "[agents.a] tools names 'mcp:files', which is not configured"),
        (LOOP + "tools = ['t', 't']\n[tools.t]\nargv=['x']", "[agents.a] tools names 't' twice"),
        (
            "default_agent = 'aa'\n" + LOOP,
            "default_agent is 'aa', which is not configured; did you mean 'a'?",
        ),
        ("a = ", "agentrun.toml is not TOML"),
        *(
            (LOOP + f"base_url = '{url}'", '[agents.a] base_url must be an address such as "http://127.0.0.1:8080/v1"')
            for url in ("", "127.0.0.1:8080", "ftp://h/", "http://", "http://h:99999/", "http://[::1", "http://a b/")
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        LOOP + "base_url = 'http://ann:s3cret-word@h:99999/'",
        LOOP + "api_key_command = 'echo s3cret-word'",
        "[mcp.m]\nurl = 'http://h/'\nheaders = ['x: s3cret-word']",
        "[mcp.m]\ncommand = 'x'\nenv = ['X=s3cret-word']",
        "[mcp.m]\ncommand = 'x'\nenv = {X = 's3cret-word', Y = 1}",
        "[mcp.m]\ncommand = 'x'\nargs = '--token=s3cret-word'",
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_it(tmp_path: Path, text: str) -> None:
    # covers promise 15
    with pytest.raises(ConfigError, match="must be") as refused:
        loaded(tmp_path, text)
    assert "s3cret" not in str(refused.value)
    assert "[redacted]" in str(refused.value)


def test_bytes_that_are_no_text_are_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(str(path))


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "agentrun.toml")
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(1 << 40)
    for path, says in (
        (tmp_path / "agentrun.toml", "no regular file"),
        ("/dev/zero", "no regular file"),
        (tmp_path / "large.toml", "more than 64 MiB"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ConfigError, match=f"cannot be read: .*{says}"):
            load_config(str(path), optional=True)
        with pytest.raises(ConfigError, match=f"cannot be read: .*{says}"):
            load_turns(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other users")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_another_user_may_have_put_there_is_not_read(tmp_path: Path, kind: str) -> None:
    """It names commands that are executed as whoever reads it. # covers promise 14"""
    OTHER, ADMIN = 64002, 64003
    (tmp_path / "accounts").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    path = tmp_path / "agentrun.toml"
    planted = path if kind == "file" else theirs / "evil.toml"
    planted.write_text("max_attempts = 7")
    if kind == "link":
        path.symlink_to(planted)
        os.chown(theirs, OTHER, OTHER)
    os.chown(planted, OTHER, OTHER)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    for mode in (0o1777, 0o777, 0o2775):
        tmp_path.chmod(mode)
        with pytest.raises(ConfigError, match=f"another user .uid {OTHER}.*--config"):
            load_config(str(path))
    # In a directory of their own nobody else can have put it there, and no others write into this one.
    for folder, owner, mode in ((tmp_path, 0, 0o755), (tmp_path, OTHER, 0o1777)):
        os.chown(folder, owner, owner)
        folder.chmod(mode)
        assert load_config(str(path)).max_attempts == 7
    # Where no tree is, those who share a group share their files.
    os.chown(tmp_path, ADMIN, ADMIN)
    (tmp_path / "accounts").rmdir()
    tmp_path.chmod(0o2775)
    assert load_config(str(path)).max_attempts == 7


def test_what_everybody_may_write_is_not_read(tmp_path: Path) -> None:
    """As ssh treats its own files: whoever can change it has commands executed as its reader. # covers promise 14"""
    path = tmp_path / "my agent's.toml"
    path.write_text("max_attempts = 7")
    for mode in (0o600, 0o644, 0o664, 0o660, 0o444):
        path.chmod(mode)
        assert load_config(str(path)).max_attempts == 7
    for mode in (0o666, 0o602, 0o777):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="everybody may write it") as raised:
            load_config(str(path), optional=True)
        (words, _, command) = raised.value.message.partition("; look at what it says, then: ")
        assert (str(path)) in words or repr(str(path)) in words
        with pytest.raises(ConfigError, match="everybody may write it"):
            load_turns(str(path))
        # What it says to type is what helps.
        subprocess.run(["sh", "-c", command], check=True)
        assert load_config(str(path)).max_attempts == 7
    link = tmp_path / "link.toml"
    link.symlink_to(path)  # has mode 777, which means nothing
    assert load_config(str(link)).max_attempts == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other groups")
def test_in_a_tree_s_root_a_group_of_others_may_not_write_it_either(tmp_path: Path) -> None:
    """Where a user has a group of his own, that group writes (umask 002), and nobody else is in it."""
    path = tmp_path / "agentrun.toml"
    path.write_text("max_attempts = 7")
    path.chmod(0o664)
    (tmp_path / "accounts").mkdir()
    assert load_config(str(path)).max_attempts == 7
    os.chown(path, -1, 64002)
    with pytest.raises(ConfigError, match=r"its group \(gid 64002\) may write it .mode 0664.*chmod go-w"):
        load_config(str(path))
    (tmp_path / "accounts").rmdir()
    assert load_config(str(path)).max_attempts == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other users")
@pytest.mark.parametrize("sticky", [0, stat.S_ISVTX])
def test_a_directory_that_another_user_may_have_put_on_the_way_is_not_followed(tmp_path: Path, sticky: int) -> None:
    """Where everybody may write, somebody else may have made the directory in which the file is. # covers promise 14"""
    OTHER = 64002
    public, mine, theirs = tmp_path / "public", tmp_path / "public" / "mine", tmp_path / "public" / "theirs"
    for folder in (public, mine, theirs, mine / "deep"):
        folder.mkdir()
    public.chmod(0o777 | sticky)
    os.chown(theirs, OTHER, OTHER)
    for path in (mine / "deep" / "agentrun.toml", theirs / "agentrun.toml"):
        path.write_text("max_attempts = 7")
    assert load_config(str(mine / "deep" / "agentrun.toml")).max_attempts == 7
    ways = [theirs, mine / "deep" / ".." / ".." / "theirs", mine / "absolute", mine / "relative"]
    (mine / "absolute").symlink_to(theirs)
    (mine / "relative").symlink_to("../theirs")
    for way in ways:
        with pytest.raises(ConfigError, match=f"public/theirs belongs to another user .uid {OTHER}.*--config"):
            load_config(f"{way}/agentrun.toml")
    os.lchown(mine / "relative", OTHER, OTHER)
    public.chmod(0o755)
    # Nobody else can have made anything there: whoever names another user's file has it.
    for way in ways:
        assert load_config(f"{way}/agentrun.toml").max_attempts == 7


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "nosuch.toml")
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load_config(missing)
    assert load_config(missing, optional=True) == load_config(None) == Config()
    for unreadable in (str(tmp_path), "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(unreadable, optional=True)


def test_a_relative_path_is_kept_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, LOOP)
    monkeypatch.chdir(tmp_path)
    assert load_config("agentrun.toml").path == str(tmp_path / "agentrun.toml")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("local", AgentConfig("local", model="local")),
        (
            "acp:opencode 'a b'",
            AgentConfig("acp:opencode 'a b'", kind="acp", command=("opencode", "a b")),
        ),
        (
            "command:llm -m local",
            AgentConfig("command:llm -m local", kind="command", command=("llm", "-m", "local")),
        ),
    ],
)
def test_agents_without_configuration(name: str, expected: AgentConfig) -> None:
    assert Config().agent(name) == expected


@pytest.mark.parametrize("name", ["acp:", "command: ", "command:'open"])
def test_a_command_line_that_is_none_is_wrong_usage(name: str) -> None:
    with pytest.raises(UsageError):
        Config().agent(name)


def test_the_only_agent_is_the_default_one(tmp_path: Path) -> None:
    assert loaded(tmp_path, LOOP).agent(None).name == "a"
    with pytest.raises(ConfigError, match="several agents and no default_agent"):
        loaded(tmp_path, LOOP + '[agents.b]\nmodel = "local"').agent(None)


def test_without_an_agent_it_says_how_to_configure_one() -> None:
    for name in (None, "analyst"):
        with pytest.raises(ConfigError) as refused:
            Config().agent(name)
        assert refused.value.exit_code == EXIT_CODES["config"] == 13
        said = [str(refused.value), *(refused.value.hint or "").split("\n")]
        assert len(said) == 4
        assert "[agents.first]" in said[2]
        assert "--agent" in said[3]
    assert Config().agent(None, unconfigured="local").model == "local"


def test_an_unknown_agent_or_tool_is_told_the_nearest(tmp_path: Path) -> None:
    config = loaded(tmp_path, EXAMPLE)
    with pytest.raises(ConfigError, match="no agent is called 'analist'; did you mean 'analyst'"):
        config.agent("analist")
    with pytest.raises(ConfigError, match="no tool is called 'query'"):
        config.tool("query")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("2h", 7200),
        ("7d", 604800),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "-1s", "1 s", "1S", "1w", "½h", "٣s", "1e3s", "infs", "nans", "1s\n", "9" * 400 + "d"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


def test_servers_of_the_usual_json_file_are_read_from_where_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "agentrun.toml"
    servers = {
        "files": {"command": "npx", "args": ["-y", "x"], "type": "stdio", "autoApprove": [], "env": {"A": "${A}"}},
        "web": {"url": "http://x/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "off": {"command": "x", "disabled": True},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    path.write_text("mcp_servers = 'mcp.json'\n[agents.a]\nmodel = 'local'\ntools = ['mcp:files']\n")
    assert load_config(str(path)).mcp == {
        "files": McpConfig("files", "npx", ("-y", "x"), {"A": "${A}"}),
        "web": McpConfig("web", url="http://x/mcp", headers={"Authorization": "Bearer ${TOKEN}"}),
    }
    path.write_text("mcp_servers = 'mcp.json'\n[mcp.web]\ncommand = 'x'\n")
    with pytest.raises(ConfigError, match=r"\[mcp.web\] is a server of .*mcp.json as well"):
        load_config(str(path))


def test_a_json_file_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "agentrun.toml").write_text("mcp_servers = 'mcp.json'")
    with pytest.raises(ConfigError, match=r"mcp.json, cannot be read: No such file"):
        load_config(str(tmp_path / "agentrun.toml"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", 'has no "mcpServers"'),
        ('{"mcpServers": {"a": 1}}', 'has no "mcpServers"'),
        ('{"mcpServers": {"a": {}}}', "mcp.json: a needs either command"),
        ('{"mcpServers": {"a": {"command": 1}}}', "mcp.json: a command must be text"),
    ],
)
def test_a_json_file_that_is_wrong_is_named(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "mcp.json").write_text(content)
    (tmp_path / "agentrun.toml").write_text("mcp_servers = 'mcp.json'")
    with pytest.raises(ConfigError) as refused:
        load_config(str(tmp_path / "agentrun.toml"))
    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["500ms", "15s", "90s", "5m", "2h", "7d", "1500ms"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert parse_duration(written(parse_duration(text))) == parse_duration(text)
    assert written(300.0) == "5m"
