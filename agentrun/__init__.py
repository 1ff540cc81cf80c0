"""Sessions and runs of AI agents on a plain directory tree, with one writer at a time.

The command line is `agentrun`; the tree it keeps is described in `docs/format.md`. From Python it is
`agentrun.open_tree()`, and what an agent, a model or a tool of one's own is written with: see `agentrun.api`.
"""

# A constant, since reading package metadata costs 40 ms at every start.
__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentFailed",
    "AgentSettings",
    "AgentrunError",
    "ChatMessage",
    "ConfigError",
    "Conflict",
    "Event",
    "Exchange",
    "Invocation",
    "Key",
    "Message",
    "Model",
    "ModelFailed",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NotFound",
    "OpenRun",
    "OpenSession",
    "OpenTree",
    "OperationStatus",
    "Question",
    "RequestFinished",
    "RunStatus",
    "RunView",
    "Said",
    "Session",
    "Stretch",
    "TimeRanOut",
    "Tool",
    "ToolCall",
    "ToolFinished",
    "ToolOutcome",
    "ToolSettings",
    "ToolSpec",
    "Turns",
    "UsageError",
    "__version__",
    "open_tree",
    "prompt_text",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.api import *  # noqa: F403


def __getattr__(name: str) -> object:
    """What `agentrun.api` offers, loaded when it is first asked for: a quick command never does."""
    # Python asks here for each module of the package, too, before it imports it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("agentrun.api"), name)
