"""How a command ended, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from agentrun.adapters.process import Outcome
from agentrun.config.secrets import hidden

# Characters of stderr that are told: its end, for that is where programs say why they ended.
STDERR_SHOWN = 2000


def how_it_ended(outcome: Outcome) -> str:
    """`exit 3`, or by which signal."""
    if outcome.exit_code is not None:
        return f"exit {outcome.exit_code}"
    if outcome.signal is None:
        return "it did not end"
    try:
        return f"ended by {signal.Signals(outcome.signal).name}"
    except ValueError:
        return f"ended by signal {outcome.signal}"


def with_stderr(ending: str, outcome: Outcome, secrets: Sequence[str] = ()) -> str:
    """`ending`, and what the command last said on stderr, without `secrets` that it was given."""
    text = outcome.stderr.decode("utf-8", "replace").strip()
    if secrets:
        # Before it is cut: half a secret would not be found any more.
        text = hidden(text, secrets)
    if not text:
        return ending
    cut = "... " if len(text) > STDERR_SHOWN or outcome.stderr_total > len(outcome.stderr) else ""
    return f"{ending}: {cut}{text[-STDERR_SHOWN:]}"
