"""The kinds of input and what a prompt does when the slot is taken, for whoever reads a command line."""

from agentrun.lifecycle.routing import MODES, IfBusy

__all__ = ["MODES", "IfBusy"]
