"""Holds the package to its layers: who may import whom, and which things happen in one place only.

The tables below are the rules. The sources are read, never imported, so a forbidden import is found
wherever it stands: in a function, under `TYPE_CHECKING`, or in an `import_module("...")`.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "agentrun"

VALUES = {"named", "errors", "clock", "ids", "pieces", "states", "records", "config"}
BELOW_RENDER = VALUES | {"store", "agent", "lifecycle", "adapters", "executor", "commands"}

# Part of the package -> what of the package it may import, besides itself. `agent.events` is that
# one module. A part that is not listed here is an error: it has no place yet.
MAY_IMPORT = {
    "__init__": {"api"},
    "api": BELOW_RENDER,
    "__main__": {"cli"},
    "named": set(),
    "errors": set(),
    "clock": set(),
    "ids": {"errors"},  # a name that is refused is an error of ours, with an exit code
    "states": {"named", "errors"},
    "records": {"named", "errors", "states", "ids"},
    "pieces": set(),
    "config": {"named", "errors", "pieces", "states", "ids"},
    "store": VALUES,
    "agent": {"named", "errors", "states", "records", "config"},
    "lifecycle": VALUES | {"store"},
    "adapters": {"named", "errors", "states", "records", "config", "agent"},
    "executor": VALUES | {"store", "lifecycle", "agent"},
    "commands": BELOW_RENDER,
    "render": {"named", "errors", "clock", "states", "records", "agent.events"},
    "cli": VALUES | {"commands", "render"},
    "testing": BELOW_RENDER | {"render"},
}


class OnlyIn(NamedTuple):
    """Names that may be used in these modules of the package alone, and why."""

    names: frozenset[str]
    modules: tuple[str, ...]
    reason: str


ONLY_IN = [
    OnlyIn(frozenset({"typer", "click"}), ("cli",), "the command line is parsed in one place"),
    OnlyIn(frozenset({"rich"}), ("render", "cli"), "only they draw on a terminal"),
    OnlyIn(frozenset({"watchfiles"}), ("store.watch",), "files are followed in one place"),
    OnlyIn(frozenset({"filelock"}), ("store",), "locks belong to the store"),
    OnlyIn(frozenset({"platformdirs"}), ("commands.place",), "the root is found in one place and handed down"),
    OnlyIn(
        frozenset(
            {"subprocess", "multiprocessing", "pty", "os.fork", "os.forkpty", "os.system", "os.popen"}
            | {"os.posix_spawn", "os.posix_spawnp"}
            | {f"os.spawn{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
            | {f"os.exec{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
            | {"asyncio.subprocess", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"}
            | {"anyio.open_process", "anyio.run_process", "anyio.to_process"}
            | {"concurrent.futures.ProcessPoolExecutor"}
        ),
        # The agent for tests is a program of its own, and starts what others have to end.
        ("adapters.process", "commands.execution", "testing.acp_agent"),
        "every process that is started must be stopped with all its descendants, and one place knows how",
    ),
    OnlyIn(
        frozenset({"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"})
        | {"getpass.getuser"},
        ("cli.options", "api", "adapters", "testing.acp_agent"),
        "library code takes what it needs as arguments; adapters make their children's environment",
    ),
    OnlyIn(
        frozenset({"print", "sys.stdout", "sys.__stdout__", "sys.stderr", "sys.__stderr__"}),
        ("cli", "render"),
        "library code returns records, it prints nothing",
    ),
]

# Modules that may catch whatever is raised, as docs/architecture.md says. Elsewhere a bug of ours would look like a
# fact.
CATCH_ALL = {
    "agent.batch",
    "agent.checks",
    "adapters.plugins",
    "adapters.agents.held",
    "adapters.process.run",
    "executor.drive",
    "cli.command_line",
}

# Every quick command loads these, and the modules below cost more than such a command may take.
# They are imported in the function that needs them.
QUICK = ("__init__", "named", "errors", "clock", "ids", "pieces", "states", "records", "store", "lifecycle")
HEAVY = {"typer", "click", "rich", "anyio", "asyncio", "dataclasses", "watchfiles", "platformdirs"} | {
    "filelock",
    "orjson",
    "psutil",
}


# The tests.


def test_the_package_keeps_to_its_layers() -> None:
    assert (PACKAGE / "__init__.py").is_file(), f"no package at {PACKAGE}: this test would check nothing"
    faults = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for fault in faults_in(module_name(path), path.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n" + "\n".join(faults)


def test_quick_modules_load_nothing_heavy_by_any_way() -> None:
    """The sources alone do not show what an import of another module brings along."""
    modules = [
        f"agentrun.{name}".removesuffix(".__init__")
        for name in map(module_name, sorted(PACKAGE.rglob("*.py")))
        if is_within(name, QUICK)
    ]
    assert heavy_modules_loaded_by(ROOT, modules) == []


def test_a_heavy_module_that_another_brings_along_is_seen(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text("import inner\n")
    (tmp_path / "inner.py").write_text("import dataclasses\n")
    assert heavy_modules_loaded_by(tmp_path, ["outer"]) == ["dataclasses (by outer)"]


def test_whatever_is_raised_is_caught_where_the_page_says_and_nowhere_else() -> None:
    found = {
        name
        for path in sorted(PACKAGE.rglob("*.py"))
        if catches_all(ast.parse(path.read_text(encoding="utf-8"))) and (name := module_name(path))
    }
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| catches `Exception` |")]
    told = {word.replace("/", ".") for word in re.findall(r"`([a-z_/]+/[a-z_/]+)`", row)}
    assert found == CATCH_ALL
    assert told == CATCH_ALL


CAUGHT = [
    ("try: f()\nexcept Exception: pass", True),
    ("try: f()\nexcept Exception as error: g(error)", True),
    ("try: f()\nexcept (OSError, Exception): pass", True),
    ("try: f()\nexcept: pass", True),
    ("try: f()\nexcept BaseException: pass", True),
    ("try: f()\nexcept builtins.Exception: pass", True),
    ("async def f():\n    try: await g()\n    except* Exception: pass", True),
    ("def f():\n    try: g()\n    except Exception:\n        if h(): return\n        raise", True),
    ("with suppress(Exception): f()", True),
    ("with contextlib.suppress(OSError, BaseException): f()", True),
    # It goes on, after something was done about it.
    ("try: f()\nexcept BaseException:\n    g()\n    raise", False),
    ("try: f()\nexcept Exception as error:\n    g()\n    raise", False),
    ("try: f()\nexcept (OSError, ValueError): pass", False),
    ("try: f()\nexcept BaseExceptionGroup as raised: raise the_one(raised) from None", False),
    ("with suppress(OSError): f()", False),
    ("def f(error: Exception) -> bool: return isinstance(error, Exception)", False),
]


@pytest.mark.parametrize(("source", "is_found"), CAUGHT)
def test_what_catches_everything_is_found(source: str, is_found: bool) -> None:
    assert catches_all(ast.parse(source)) is is_found


FORBIDDEN = [
    # Layers, in every way an import can be written.
    ("store.disk", "import agentrun.agent.loop", "1: store may not import agent.loop"),
    ("store.disk", "from agentrun import agent", "1: store may not import agent"),
    ("store.disk", "from agentrun.agent import loop", "1: store may not import agent.loop"),
    ("store.disk", "from ..agent.loop import Loop", "1: store may not import agent.loop.Loop"),
    ("store.disk", "from .. import agent", "1: store may not import agent"),
    ("store.__init__", "from ..agent import loop", "1: store may not import agent.loop"),
    ("store.disk", "def f():\n    import agentrun.agent", "2: store may not import agent"),
    ("store.disk", "if TYPE_CHECKING:\n    from agentrun.agent import x", "2: store may not import agent.x"),
    (
        "store.disk",
        "import importlib\nimportlib.import_module('agentrun.agent')",
        "2: store may not import agent",
    ),
    ("store.disk", "from agentrun import *", "1: store may not import *"),
    ("agent.loop", "from agentrun.store import runs", "1: agent may not import store.runs"),
    ("agent.loop", "from agentrun import store", "1: agent may not import store"),
    ("adapters.registry", "from agentrun.store import runs", "1: adapters may not import store.runs"),
    ("executor", "from agentrun.adapters import registry", "1: executor may not import adapters.registry"),
    ("executor.work", "from agentrun.adapters import registry", "1: executor may not import adapters"),
    ("lifecycle.queue", "from agentrun.executor import run", "1: lifecycle may not import executor.run"),
    ("commands.show", "from agentrun.render import plain", "1: commands may not import render.plain"),
    ("render.plain", "from agentrun.agent import loop", "1: render may not import agent.loop"),
    ("cli.app", "from agentrun.store import tree", "1: cli may not import store.tree"),
    ("testing.fakes", "from agentrun.cli import app", "1: testing may not import cli.app"),
    ("errors", "from agentrun import states", "1: errors may not import states"),
    ("ids", "from agentrun import states", "1: ids may not import states"),
    ("__init__", "from agentrun.errors import AgentrunError", "1: __init__ may not import errors"),
    ("surprise", "", "1: surprise has no place in the table of layers"),
    # One place for each of these.
    ("commands.show", "import typer", "1: typer belongs in cli alone"),
    ("commands.show", "from rich.table import Table", "1: rich belongs in render, cli alone"),
    ("store.disk", "def f():\n    import watchfiles", "2: watchfiles belongs in store.watch alone"),
    ("lifecycle.queue", "def f():\n    import filelock", "2: filelock belongs in store alone"),
    ("config", "from platformdirs import user_data_path", "1: platformdirs belongs in commands.place alone"),
    ("adapters.tools.command", "import subprocess", "1: subprocess belongs in adapters.process"),
    ("store.runs", "import os\nos.fork()", "2: os.fork belongs in adapters.process"),
    ("store.runs", "import os as o\no.posix_spawn", "2: os.posix_spawn belongs in adapters.process"),
    ("store.runs", "from os import execv", "1: os.execv belongs in adapters.process"),
    ("executor", "import asyncio\nasyncio.create_subprocess_exec()", "2: asyncio.create_subprocess_exec"),
    ("executor", "import anyio\nanyio.open_process([])", "2: anyio.open_process belongs in adapters.process"),
    (
        "config",
        "import os\nos.environ['HOME']",
        "2: os.environ belongs in cli.options, api, adapters, testing.",
    ),
    ("cli.app", "from os import getenv", "1: os.getenv belongs in cli.options, api, adapters, testing."),
    ("commands.show", "print('x')", "1: print belongs in cli, render alone"),
    ("commands.show", "import sys\nsys.stdout.write('x')", "2: sys.stdout belongs in cli, render alone"),
    ("agent.loop", "import sys\nx = sys.stderr", "2: sys.stderr belongs in cli, render alone"),
    # Nothing heavy on the way to a quick command.
    ("store.disk", "import anyio", "1: anyio is imported at module level"),
    ("records", "from dataclasses import dataclass", "1: dataclasses is imported at module level"),
    ("store.locks", "try:\n    import filelock\nexcept ImportError:\n    pass", "2: filelock is imported at"),
    ("lifecycle.queue", "class A:\n    import asyncio.events", "2: asyncio is imported at module level"),
    ("ids", "if True:\n    pass\nelse:\n    import anyio", "4: anyio is imported at module level"),
    ("ids", "if TYPE_CHECKING:\n    pass\nelse:\n    import anyio", "4: anyio is imported at module level"),
]

ALLOWED = [
    ("store.disk", "from agentrun import __version__, errors\nfrom . import layout\nfrom .layout import x"),
    ("store.disk", "import os, fcntl\nfrom agentrun.records import Run"),
    ("store.locks", "def lock():\n    import filelock"),
    ("store.watch", "def follow():\n    import watchfiles"),
    ("records", "if TYPE_CHECKING:\n    from dataclasses import dataclass"),
    ("records", "import typing\nif typing.TYPE_CHECKING:\n    import anyio"),
    ("records", "import richer\nclass Printer:\n    def print(self): self.print()"),
    ("executor", "import anyio\nfrom agentrun.agent.events import Stopped\nfrom agentrun.store import runs"),
    ("adapters.process", "import os, subprocess\nos.environ"),
    ("adapters.process.group", "import subprocess"),
    ("commands.execution", "import subprocess"),
    ("render.live", "import rich\nfrom agentrun.agent import events\nfrom agentrun.agent.events import x"),
    ("cli.options", "import os, typer\nos.environ\nprint('x')"),
    ("testing.fakes", "from agentrun.render import plain\nfrom agentrun.commands import show"),
    ("__main__", "from agentrun.cli.main import main"),
]


@pytest.mark.parametrize(("module", "source", "expected"), FORBIDDEN)
def test_a_forbidden_line_is_found(module: str, source: str, expected: str) -> None:
    faults = faults_in(module, source)
    assert any(fault.startswith(expected) for fault in faults), faults


@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_an_allowed_line_is_left_alone(module: str, source: str) -> None:
    assert faults_in(module, source) == []


# How the sources are read.


def module_name(path: Path) -> str:
    """`agentrun/store/disk.py` -> `store.disk`; `__init__` is kept, relative imports need it."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def faults_in(module: str, source: str) -> list[str]:
    """What breaks a rule in the source of `module`, each as `line: what, and the rule`."""
    tree = ast.parse(source)
    found = [
        *layer_faults(module, tree),
        *place_faults(module, tree),
        *heavy_faults(module, tree),
    ]
    return [f"{line}: {text}" for line, text in sorted(set(found))]


def layer_faults(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    part = module.split(".")[0]
    if part not in MAY_IMPORT:
        yield 1, f"{part} has no place in the table of layers (MAY_IMPORT in tests/test_layers.py)"
        return
    allowed = tuple(MAY_IMPORT[part] | {part})
    for line, name in imports(module, ast.walk(tree)):
        target = name.removeprefix("agentrun.")
        is_ours = target != name and (target.split(".")[0] in MAY_IMPORT or target == "*")
        if is_ours and not is_within(target, allowed):
            yield line, f"{part} may not import {target}; it may import: {', '.join(sorted(allowed))}"


def place_faults(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, name in [*imports(module, ast.walk(tree)), *uses(tree)]:
        for rule in ONLY_IN:
            hit = next((known for known in rule.names if is_within(name, (known,))), None)
            if hit and not is_within(module, rule.modules):
                yield line, f"{hit} belongs in {', '.join(rule.modules)} alone: {rule.reason}"


def heavy_faults(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    if not is_within(module, QUICK):
        return
    for line, name in imports(module, module_level(tree)):
        top = name.split(".")[0]
        if top in HEAVY:
            yield line, f"{top} is imported at module level: every quick command would pay for it"


def catches_all(tree: ast.Module) -> bool:
    """Whether anything in the source keeps every exception from going on, whatever it is."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught) if caught is None or names_all(caught):
                if not goes_on(node):
                    return True
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
                if any(map(names_all, args)):
                    return True
            case _:
                pass
    return False


def goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether what was caught is raised again by every way through the handler."""
    last = handler.body[-1]
    leaves = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(handler))
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def names_all(node: ast.expr) -> bool:
    """Whether the classes that `node` names contain all errors."""
    match node:
        case ast.Tuple(elts=each):
            return any(map(names_all, each))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("Exception", "BaseException")
        case _:
            return False


def is_within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def imports(module: str, nodes: Iterator[ast.AST]) -> Iterator[tuple[int, str]]:
    """The full dotted names that are imported, with their lines."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                origin = origin_of(module, node)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id=("import_module" | "__import__")) | ast.Attribute(attr="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name
            case _:
                pass


def origin_of(module: str, node: ast.ImportFrom) -> str:
    """The module after `from`, made absolute: one dot is the package that `module` is in."""
    if node.level == 0:
        return node.module or ""
    package = ["agentrun", *module.split(".")][: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The dotted names of what is used from imported modules (`os.environ`), and calls of `print`."""
    modules = {
        alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute():
                first, _, rest = ast.unparse(node).partition(".")
                if first in modules:
                    yield node.lineno, f"{modules[first]}.{rest}"
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno, "print"
            case _:
                pass


def module_level(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: no function bodies, nothing for type checkers."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for statement in child.orelse:
                    yield statement
                    yield from module_level(statement)
            case _:
                yield child
                yield from module_level(child)


def heavy_modules_loaded_by(path: Path, modules: list[str]) -> list[str]:
    """Imports each module in a fresh interpreter; names the heavy ones that came with it, and with which."""
    program = (
        "import importlib, sys\n"
        "path, heavy, *modules = sys.argv[1:]\n"
        "sys.path.insert(0, path)\n"
        "missing = [name for name in heavy.split() if name not in sys.modules]\n"
        "for module in modules:\n"
        "    importlib.import_module(module)\n"
        "    for name in [name for name in missing if name in sys.modules]:\n"
        "        missing.remove(name)\n"
        "        print(f'{name} (by {module})')\n"
    )
    command = [sys.executable, "-I", "-c", program, str(path), " ".join(sorted(HEAVY)), *modules]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
