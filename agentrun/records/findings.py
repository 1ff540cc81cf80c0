"""What the world outside said of an action, in words that decide what may follow.

An answer that could not be had, or was not understood, is `unknown`: it never counts as "did not happen".
"""

from __future__ import annotations

from typing import Literal

from agentrun.named import NamedTuple

# `failed` of a probe means: it did not happen, and it will not.
ProbeWord = Literal["succeeded", "failed", "running", "unknown"]
CancelWord = Literal["cancelled", "succeeded", "failed", "running", "unknown"]
PROBE_WORDS: tuple[ProbeWord, ...] = ("succeeded", "failed", "running", "unknown")
CANCEL_WORDS: tuple[CancelWord, ...] = ("cancelled", *PROBE_WORDS)


class Probed(NamedTuple):
    """What a tool's `probe` said of one action. `evidence` says who said it, or why nobody could."""

    status: ProbeWord
    result: bytes | None = None
    evidence: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether it is known how the action ended."""
        return self.status in ("succeeded", "failed")


class CancelAnswer(NamedTuple):
    """What a tool's `cancel` said of one action.

    `cancelled` says that nothing more comes of it. `is_asked` is False where the command could not be asked, or failed;
    `is_silent` says that it ended well without a word, which means `cancelled` unless somebody knows better.
    """

    status: CancelWord
    result: bytes | None = None
    evidence: str = ""
    is_asked: bool = True
    is_silent: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether it is known how the action ended, in the command's own words."""
        return self.status in ("cancelled", "succeeded", "failed") and not self.is_silent

    @property
    def is_known(self) -> bool:
        """Whether it settles the action, silence included."""
        return self.status in ("cancelled", "succeeded", "failed")
