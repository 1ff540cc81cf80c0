"""Asks the world outside about an action: the tool's `probe` and `cancel` commands.

Each gets `{"remoteId", "idempotencyKey"}` as JSON on its stdin, in the directory and with the environment of the tool
itself, and answers on its stdout with `{"status": ..., "result": ...}`. An answer that does not come, in time and in
these words, is `unknown`, and the evidence says why: nothing here raises, for whoever asks is winding down or picking
up the pieces, and one broken command must not keep the rest from being settled. Whatever the command started has ended
when the answer is given.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple

from agentrun.adapters.process import CannotStart, Outcome, end_marked, run_process
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.telling import how_it_ended, with_stderr
from agentrun.config import ToolConfig
from agentrun.errors import UsageError
from agentrun.records.codec import Doc, decode, encode_line
from agentrun.records.findings import CANCEL_WORDS, PROBE_WORDS, CancelAnswer, CancelWord, Probed, ProbeWord
from agentrun.records.operation import Operation

# Seconds that one question may take; less where the tool itself may take less. A cancel waits for it, so this
# is what a user is ready to wait, and a status query that takes longer is as good as none.
LONGEST_ANSWER_SECONDS = 30.0
# Seconds from SIGTERM to SIGKILL for a question that got no answer in time, or is not wanted any more: it only asks.
QUESTION_GRACE = 0.5
# Bytes of an answer, which is stored in one line. A result that is longer is a file, which the answer can name.
LONGEST_ANSWER = 256 * 1024
# Tells the processes of one question from those of the tool, which carry the same operation.
_MARK = "AGENTRUN_QUESTION"


class CommandOutside:
    """Asks through the commands of `tools`, for the run that `surroundings` names; see `agent.protocols.Outside`."""

    def __init__(
        self,
        tools: Mapping[str, ToolConfig],
        surroundings: Surroundings,
        *,
        directory: str,
        secrets: Collection[str],
    ) -> None:
        self._tools = tools
        self._surroundings = surroundings
        self._directory = directory
        self._secrets = secrets

    def can_probe(self, operation: Operation) -> bool:
        """Whether there is a command to ask."""
        tool = self._tools.get(operation.name)
        return tool is not None and tool.probe is not None

    def can_cancel(self, operation: Operation) -> bool:
        """Whether there is a command that may stop it."""
        tool = self._tools.get(operation.name)
        return tool is not None and tool.cancel is not None

    def patience(self, operation: Operation) -> float:
        """Seconds that the world outside is given to take a cancel in."""
        tool = self._tools.get(operation.name)
        return tool.grace if tool else 0.0

    def longest(self, operation: Operation) -> float:
        """What the tool is configured to take to end: whoever waits for its end waits for its answers no longer."""
        tool = self._tools.get(operation.name)
        return tool.grace + tool.kill_timeout if tool else 0.0

    async def probe(self, operation: Operation, within: float | None = None) -> Probed:
        """What the tool's `probe` says of it."""
        answer = await self._ask("probe", operation, PROBE_WORDS, within)
        word: ProbeWord = next((each for each in PROBE_WORDS if each == answer.word), "unknown")
        return Probed(word, answer.result, answer.evidence)

    async def cancel(self, operation: Operation, within: float | None = None) -> CancelAnswer:
        """Asks the tool's `cancel` to stop it. One that ends well and says nothing has done so."""
        answer = await self._ask("cancel", operation, CANCEL_WORDS, within)
        if answer.is_silent:
            return CancelAnswer("cancelled", evidence=answer.evidence, is_silent=True)
        word: CancelWord = next((each for each in CANCEL_WORDS if each == answer.word), "unknown")
        return CancelAnswer(word, answer.result, answer.evidence, is_asked=answer.word is not None)

    async def _ask(self, verb: str, operation: Operation, words: Collection[str], within: float | None) -> _Answer:
        tool = self._tools.get(operation.name)
        if tool is None:
            return _Answer(f"{operation.name} is not configured any more, so nobody can be asked")
        argv = tool.probe if verb == "probe" else tool.cancel
        if argv is None:
            return _Answer(f"{operation.name} has no {verb} command")
        seconds = _seconds(tool, within)
        try:
            outcome = await self._run(tool, argv, operation, seconds)
            with outcome.stdout as stdout:
                return _read(verb, outcome, stdout.read(), words, seconds)
        except CannotStart as error:
            return _Answer(f"its {verb}: {error}")
        # The system, between us and a foreign command: no descriptor, no room for what it says, no /proc. Nobody knows
        # more than before.
        except OSError as error:
            return _Answer(f"its {verb} could not be asked: {error}")

    async def _run(self, tool: ToolConfig, argv: tuple[str, ...], operation: Operation, seconds: float) -> Outcome:
        operation_id, key = operation.operation_id, operation.idempotency_key or ""
        mark = {_MARK: uuid.uuid4().hex}
        marker = self._surroundings.marker(operation_id) | mark
        outcome = await run_process(
            argv,
            cwd=self._directory,
            env=self._surroundings.environment_for(operation_id, key, self._secrets) | mark,
            marker=marker,
            stdin=encode_line({"remoteId": operation.remote_id, "idempotencyKey": key}),
            timeout=seconds,
            grace=min(tool.grace, QUESTION_GRACE),
            kill=tool.kill_timeout,
            max_output=LONGEST_ANSWER,
        )
        # A question leaves nothing behind, unlike a tool, which may start a service.
        await end_marked(marker, grace=min(tool.grace, QUESTION_GRACE), kill=tool.kill_timeout)
        return outcome


class _Answer(NamedTuple):
    """An answer in one of the words that were expected, or why there is none; silence is no word."""

    evidence: str
    word: str | None = None
    result: bytes | None = None
    is_silent: bool = False


def _seconds(tool: ToolConfig, within: float | None) -> float:
    limits = (tool.timeout, within, LONGEST_ANSWER_SECONDS)
    return min(limit for limit in limits if limit is not None)


def _read(verb: str, outcome: Outcome, said: bytes, words: Collection[str], seconds: float) -> _Answer:
    if outcome.timed_out:
        return _Answer(with_stderr(f"its {verb} did not answer within {seconds:g} s", outcome))
    if outcome.exit_code != 0:
        return _Answer(with_stderr(f"its {verb} failed ({how_it_ended(outcome)})", outcome))
    if outcome.stdout_cut:
        return _Answer(f"its {verb} said more than {LONGEST_ANSWER} bytes, which is no answer")
    if not said.strip():
        return _Answer(f"its {verb} ended well and said nothing", is_silent=True)
    try:
        doc = decode(said)
    except ValueError:
        return _Answer(f"its {verb} said what is no JSON object: {_excerpt(said)}")
    word = doc.get("status")
    if not isinstance(word, str) or word not in words:
        return _Answer(f"its {verb} said {_excerpt(said)}, where status has to be one of: {', '.join(words)}")
    try:
        return _Answer(f"its {verb} said: {word}", word, _result(doc))
    except UsageError as error:
        return _Answer(f"its {verb} said: {word}, with a result that no record can hold: {error.message}")


def _result(doc: Doc) -> bytes | None:
    """The result as a tool would have printed it: text as it is, anything else as JSON. Raises UsageError."""
    result = doc.get("result")
    if result is None:
        return None
    if isinstance(result, str):
        return result.encode("utf-8", "replace")
    return encode_line({"result": result})[len('{"result":') : -len("}\n")]


def _excerpt(said: bytes) -> str:
    text = said.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= 200 else f"{text[:200]} ...")
