"""A tool that is a command: arguments as JSON on its stdin, the result on its stdout.

Exit 0 is a success and 75 a failure for now; every other end is a failure, and the end of stderr says why. A
line `{"remoteId": "..."}` on file descriptor 3 is passed on at once. Of a write that was cut off - it took too
long, something killed it - the tool's `probe` is asked, after its last process has ended. Whatever the command
does - floods its output, leaves a child behind, speaks nonsense on descriptor 3, cannot be started - the outcome
says so and nothing raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import anyio

from agentrun.adapters.process import CannotStart, Outcome, end_marked, run_process
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.outside import CommandOutside
from agentrun.adapters.tools.telling import how_it_ended, was_killed, with_stderr
from agentrun.agent.outside import ask_to_stop
from agentrun.agent.protocols import Invocation, ToolOutcome, ToolSpec
from agentrun.config import ToolConfig
from agentrun.records.codec import decode, encode_line
from agentrun.records.findings import Probed
from agentrun.records.operation import TOOL, WRITE, Operation
from agentrun.states import OperationStatus as Status

# EX_TEMPFAIL of sysexits.h.
FAILED_FOR_NOW = 75
# Remote ids that are stored of one call: each is a line of the record, which is synced while the tool goes on.
MOST_REMOTE_IDS = 100
# Bytes of stdout that are kept. More than this is a file, which a tool can name instead of printing it.
MAX_OUTPUT = 64 * 1024 * 1024


def spec_of(config: ToolConfig) -> ToolSpec:
    """What the configuration says of a tool, as the loop has it."""
    return ToolSpec(
        name=config.name,
        description=config.description,
        parameters=dict(config.parameters),
        effect=config.effect,
        approve=config.approve,
        resource=config.resource,
        timeout=config.timeout,
        retries=config.retries,
    )


class CommandTool:
    """The tool that `config` describes. It runs in `directory`, without the variables named in `secrets`.

    `stdin` is what it reads instead of its arguments; `max_output` is how many bytes of its
    output are kept; None is as many as of any tool.
    """

    def __init__(
        self,
        config: ToolConfig,
        surroundings: Surroundings,
        *,
        directory: str,
        secrets: Collection[str],
        stdin: bytes | None = None,
        max_output: int | None = None,
    ) -> None:
        self._config = config
        self._surroundings = surroundings
        self._directory = directory
        self._secrets = secrets
        self._stdin = stdin
        self._max_output = MAX_OUTPUT if max_output is None else max_output

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it, and what the loop keeps to."""
        return spec_of(self._config)

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """Runs the command once. If it is stopped, `on_stopped` hears of it after its last process ended."""
        lines = _RemoteIdLines(on_remote_id)
        started: list[int] = []
        ended: list[Outcome] = []
        try:
            outcome = await self._run(invocation, lines, started.append, ended.append)
        except CannotStart as error:
            return ToolOutcome(Status.FAILED, error=str(error))
        except BaseException:
            interrupted = ended[0] if ended else None
            stopped = self._stopped(bool(started), interrupted, lines)
            is_alive = interrupted is not None and bool(interrupted.survivors)
            on_stopped(stopped if is_alive else await self._stopped_outside(invocation, stopped, lines.last))
            raise
        known = self._outcome(outcome, lines)
        if not known.may_have_effects:
            return known
        try:
            # A run that it began would go on without it, and what the probe says of that would not be the last word.
            await invocation.before_ending()
            if outcome.survivors or self._config.probe is None:
                return known
            return await self._probed(invocation, known, lines.last)
        except BaseException:
            # Stopped over asking: whoever winds the run down asks again.
            on_stopped(known if outcome.survivors else await self._stopped_outside(invocation, known, lines.last))
            raise

    async def _probed(self, invocation: Invocation, known: ToolOutcome, remote_id: str | None) -> ToolOutcome:
        """What is known of a write that was cut off, once its probe was asked. Only `failed` lets it be tried again."""
        probed = await self._probe(invocation, remote_id)
        if probed is None:
            return known
        said = f"{known.error}; {probed.evidence}"
        match probed.status:
            case "succeeded":
                return _with_output(known, probed.result)._replace(
                    status=Status.SUCCEEDED, error=None, may_have_effects=False, note=_joined(known.note, said)
                )
            case "failed":
                return known._replace(status=Status.FAILED, error=said, may_have_effects=False, retryable=True)
            case _:
                return known._replace(error=said)

    async def _stopped_outside(
        self, invocation: Invocation, stopped: ToolOutcome, remote_id: str | None
    ) -> ToolOutcome:
        """What is known of a write that the user stopped alone, once its `cancel` and `probe` were asked.

        Of a run that is stopped as a whole, that is left to whoever winds it down.
        """
        can_be_asked = self._config.cancel is not None or self._config.probe is not None
        if not (stopped.may_have_effects and invocation.is_alone() and can_be_asked):
            return stopped
        with anyio.CancelScope(shield=True):
            if not await self._is_gone(invocation):
                return stopped
            asked = self._operation(invocation, remote_id)
            answers = await ask_to_stop([asked], self._outside(), invocation.is_forced)
        answer = answers[invocation.operation_id]
        known = stopped._replace(note=_joined(stopped.note, answer.evidence))
        if not answer.is_known:
            return known
        known = _with_output(known, answer.result)
        return known._replace(status=Status(answer.status), may_have_effects=False, retryable=False)

    async def _probe(self, invocation: Invocation, remote_id: str | None) -> Probed | None:
        """What its probe says of the call; None as long as something of it is alive."""
        if not await self._is_gone(invocation):
            return None
        return await self._outside().probe(self._operation(invocation, remote_id))

    async def _is_gone(self, invocation: Invocation) -> bool:
        # What is alive could still do what the probe denies.
        return not await end_marked(self._surroundings.marker(invocation.operation_id), grace=self._config.grace)

    def _operation(self, invocation: Invocation, remote_id: str | None) -> Operation:
        operation_id, key = invocation.operation_id, invocation.idempotency_key
        return Operation(operation_id, TOOL, self._config.name, effect=WRITE, idempotency_key=key, remote_id=remote_id)

    def _outside(self) -> CommandOutside:
        tools = {self._config.name: self._config}
        return CommandOutside(tools, self._surroundings, directory=self._directory, secrets=self._secrets)

    async def _run(
        self,
        invocation: Invocation,
        lines: _RemoteIdLines,
        on_started: Callable[[int], None],
        on_interrupted: Callable[[Outcome], None],
    ) -> Outcome:
        operation_id = invocation.operation_id
        return await run_process(
            self._config.argv,
            cwd=self._directory,
            env=self._surroundings.environment_for(operation_id, invocation.idempotency_key, self._secrets),
            marker=self._surroundings.marker(operation_id),
            stdin=encode_line(invocation.arguments) if self._stdin is None else self._stdin,
            timeout=self._config.timeout,
            grace=self._config.grace,
            kill=self._config.kill_timeout,
            is_forced=invocation.is_forced,
            before_ending=invocation.before_ending,
            spare=self._surroundings.spare,
            max_output=self._max_output,
            on_started=on_started,
            on_line=lines.take,
            on_interrupted=on_interrupted,
        )

    def _outcome(self, outcome: Outcome, lines: _RemoteIdLines) -> ToolOutcome:
        note = _note(outcome, lines)
        output = outcome.stdout
        if outcome.timed_out:
            return ToolOutcome(
                Status.TIMED_OUT,
                output,
                error=with_stderr(f"it did not end within {self._config.timeout:g} s", outcome),
                may_have_effects=self._writes,
                retryable=not self._writes,
                note=note,
            )
        if outcome.exit_code == 0:
            return ToolOutcome(Status.SUCCEEDED, output, note=note)
        return ToolOutcome(
            Status.FAILED,
            output,
            error=with_stderr(how_it_ended(outcome), outcome),
            # What was killed from outside had no chance to say how far it had come.
            may_have_effects=self._writes and was_killed(outcome),
            retryable=outcome.exit_code == FAILED_FOR_NOW,
            note=note,
        )

    def _stopped(self, started: bool, outcome: Outcome | None, lines: _RemoteIdLines) -> ToolOutcome:
        if outcome is not None and outcome.by_itself:
            # The stop came too late for it: that is how it ended, but nothing is tried again.
            return self._outcome(outcome, lines)._replace(retryable=False)
        return ToolOutcome(
            Status.CANCELLED,
            outcome.stdout if outcome else b"",
            may_have_effects=started and self._writes,
            note=_note(outcome, lines) if outcome else None,
        )

    @property
    def _writes(self) -> bool:
        return self._config.effect == WRITE


class _RemoteIdLines:
    """The lines of descriptor 3. What is no id is counted and left out."""

    def __init__(self, on_remote_id: Callable[[str], Awaitable[None]]) -> None:
        self.ignored = 0
        self.stored = self.beyond = 0
        self.last: str | None = None
        self._on_remote_id = on_remote_id

    async def take(self, line: bytes) -> None:
        remote_id = _remote_id(line)
        if remote_id is None:
            self.ignored += bool(line.strip())
        elif self.stored == MOST_REMOTE_IDS:
            self.beyond += remote_id != self.last
        elif remote_id != self.last:
            self.last = remote_id
            self.stored += 1
            await self._on_remote_id(remote_id)


def _remote_id(line: bytes) -> str | None:
    try:
        value = decode(line).get("remoteId")
    except ValueError:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


def _with_output(known: ToolOutcome, result: bytes | None) -> ToolOutcome:
    """`known` with the whole result, where there is one, for the beginning that had been printed."""
    if result is None:
        return known
    if not isinstance(known.output, bytes):
        known.output.close()
    return known._replace(output=result)


def _joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _note(outcome: Outcome, lines: _RemoteIdLines) -> str | None:
    notes = []
    if outcome.stdout_cut:
        notes.append(f"only the first {outcome.stdout_kept} of {outcome.stdout_total} bytes of output were kept")
    if outcome.output_open:
        notes.append("another process still held the output open when the command had ended")
    if lines.ignored:
        notes.append(f'ignored on descriptor 3, since they are no {{"remoteId": ...}}: {lines.ignored} lines')
    if lines.beyond:
        notes.append(f"after {MOST_REMOTE_IDS} remote ids no more were stored: {lines.beyond} lines")
    if outcome.survivors:
        alive = ", ".join(f"{each.pid} ({each.command})" for each in outcome.survivors)
        notes.append(f"these processes could not be ended: {alive}")
    return "; ".join(notes) or None
