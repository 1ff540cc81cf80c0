"""How a command ended, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from agentrun.adapters.process import Outcome
from agentrun.config.secrets import hidden

# Characters of stderr that are told: its end, for that is where programs say why they ended.
STDERR_SHOWN = 2000


# A shell, or whatever else runs a command for another, says by an exit code above this by which signal that was ended.
_BY_SIGNAL = 128


def was_killed(outcome: Outcome) -> bool:
    """Whether a signal ended it, or what it ran: so it had no chance to say how far it had come."""
    return outcome.exit_code is None or _signal_told(outcome.exit_code) is not None


def how_it_ended(outcome: Outcome) -> str:
    """`exit 3`, or by which signal."""
    if outcome.exit_code is not None:
        told = _signal_told(outcome.exit_code)
        return f"exit {outcome.exit_code}" + (f" ({told.name})" if told else "")
    if outcome.signal is None:
        return "it did not end"
    try:
        return f"ended by {signal.Signals(outcome.signal).name}"
    except ValueError:
        return f"ended by signal {outcome.signal}"


def _signal_told(exit_code: int) -> signal.Signals | None:
    try:
        return signal.Signals(exit_code - _BY_SIGNAL)
    except ValueError:
        return None


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
