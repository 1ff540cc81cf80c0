"""The words of the command line, for completion: made by `make docs` from the commands and their help."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from agentrun.named import NamedTuple


class Words(NamedTuple):
    """A command: what it does, the kind of each of its arguments, and of each option the kind of value and the help."""

    about: str
    arguments: tuple[str, ...]
    options: dict[str, tuple[str, str]]


COMMANDS = {
    "new": Words(
        "Make a session and print its id.",
        ("text",),
        {
            "--id": ("text", "use exactly this id"),
            "--agent": ("agent", "whose session it is (default: `default_agent`)"),
            "--send": ("text", "send this as the first prompt"),
        },
    ),
    "send": Words(
        "Say something to a session: a prompt, a follow-up or an answer, whichever fits.",
        ("target", "text..."),
        {
            "--file": ("file", "add the text of a file"),
            "--mode": ("prompt|steer|follow-up|answer", "insist on one kind of input (default: the one that fits)"),
            "--if-busy": ("reject|queue|steer|interrupt", "what becomes of it if a run is active (default: it joins that run; with --mode prompt: reject)"),
            "--if-ended": ("prompt|", "if the run has ended: begin a new one (default: refuse)"),
            "--detach": ("", "return once accepted; the run goes on without this terminal"),
            "--key": ("text", "the same key and text again is accepted only once"),
            "--expect-seq": ("text", "accept it only if the conversation's last message is number N"),
            "--agent": ("agent", "an agent of the configuration (default: the session's, else `default_agent`)"),
            "--ref": ("run", "let the run cite an earlier run's report"),
            "--attach": ("file", "let the run have a file as it is now"),
            "--timeout": ("text", "executing time after which the run ends, as 30s, 10m, 2h (default: the agent's)"),
        },
    ),
    "steer": Words(
        "Change the direction of a run: delivered before its next model request.",
        ("target", "text..."),
        {
            "--key": ("text", "the same key and text again is accepted only once"),
            "--if-ended": ("prompt|", "if the run has ended: begin a new one (default: refuse)"),
        },
    ),
    "approve": Words(
        "Allow the call that a run waits with; the run goes on.",
        ("target", "operation"),
        {
            "--note": ("text", "why"),
        },
    ),
    "deny": Words(
        "Refuse the call that a run waits with; the run goes on without it.",
        ("target", "operation"),
        {
            "--note": ("text", "why"),
        },
    ),
    "cancel": Words(
        "Stop a run: its model request, its tools and all they started.",
        ("target",),
        {
            "--reason": ("text", "why, for the record"),
            "--wait": ("", "return when the run is over"),
            "--timeout": ("text", "with --wait: how long at the most, as 30s, 10m, 2h (default: no limit)"),
            "--force": ("", "kill at once, also when a grace period runs"),
            "--gone": ("", "say that the container in which its lost executor ran is gone"),
            "--op": ("operation", "only this one, such as op-3"),
        },
    ),
    "show": Words(
        "Show a session or a run, or watch one.",
        ("target",),
        {
            "-f": ("", "watch the run until it ends or waits"),
            "--follow": ("", "watch the run until it ends or waits"),
            "--messages": ("", "the conversation"),
            "--operations": ("", "the run's events"),
            "--report": ("", "the run's report alone"),
            "--since": ("text", "from this number on (default: the first)"),
            "--tail": ("text", "only the last N (default: 20; of --messages, --operations and --timeline all)"),
            "--raw": ("", "stored text as it is, control characters included"),
            "--timeline": ("", "the run's operations against time"),
            "--html": ("file", "write all of it as one page, which opens in any browser; - prints it"),
            "--overwrite": ("", "with --html: replace FILE if it is there (default: refuse)"),
        },
    ),
    "wait": Words(
        "Wait until runs have ended; exits as the first one that does not complete, or 0.",
        ("target...",),
        {
            "--timeout": ("text", "how long at the most, as 30s, 10m, 2h; then exit 124 (default: no limit)"),
        },
    ),
    "ls": Words(
        "List sessions, the one that changed last first.",
        ("text",),
        {
            "--status": ("queued|running|waiting_input|compacting|reconciling|cancelling|completed|failed|cancelled|timed_out", "only sessions whose newest run is so (default: all)"),
            "--agent": ("agent", "only sessions of this agent (default: all)"),
            "--archived": ("", "list those that were put away (default: the others)"),
            "--limit": ("text", "how many at the most"),
            "--watch": ("", "go on until Ctrl-C: drawn again, or in a pipe a line, for each change"),
        },
    ),
    "check": Words(
        "Look for damage on disk.",
        ("session",),
        {
            "--repair": ("", "make again what follows from the records, keep damaged bytes aside"),
        },
    ),
    "acp": Words(
        "Serve an editor by the Agent Client Protocol, over standard input and output.",
        (),
        {
            "--agent": ("agent", "whose session it is (default: `default_agent`)"),
        },
    ),
    "search": Words(
        "Find a text in messages and reports.",
        ("text",),
        {
            "--session": ("session", "only there (default: all sessions)"),
            "--limit": ("text", "how many at the most (default: all)"),
        },
    ),
    "rename": Words(
        "Give a session another title.",
        ("session", "text"),
        {
            "--expect-revision": ("text", "only if nobody has changed the session since revision N"),
        },
    ),
    "archive": Words(
        "Put a session away: `ls` lists it with --archived only.",
        ("session",),
        {
        },
    ),
    "unarchive": Words(
        "Take a session back that was put away.",
        ("session",),
        {
        },
    ),
    "fork": Words(
        "Make a session that begins with what was said in another one, and print its id.",
        ("session",),
        {
            "--at": ("text", "the last message to take (default: all before a run that goes on)"),
        },
    ),
    "compact": Words(
        "Have the history of a session summarised, so that later runs see less of it.",
        ("session",),
        {
            "--agent": ("agent", "whose model summarises (default: the session's, else `default_agent`)"),
            "--detach": ("", "return once accepted"),
        },
    ),
    "rm": Words(
        "Remove a session with all its files.",
        ("session",),
        {
            "--yes": ("", "do not ask"),
            "--force": ("", "give up operations that are unresolved"),
        },
    ),
    "export": Words(
        "Write a session, or one run of it, in a form for elsewhere.",
        ("target",),
        {
            "--format": ("markdown|html|json|openai|atif|otlp|archive", "default: what the name of --output says, else markdown"),
            "--output": ("file", "write this file (default: standard output)"),
            "-o": ("file", "write this file (default: standard output)"),
            "--overwrite": ("", "replace FILE if it is there"),
            "--all": ("", "an archive of all sessions of the account"),
        },
    ),
    "import": Words(
        "Take sessions in, from archives or other programs' files.",
        ("file",),
        {
            "--format": ("archive|claude-code|codex|llm", "default: what FILE turns out to be"),
            "--from": ("archive|claude-code|codex|llm", "default: what FILE turns out to be"),
            "--as": ("text", "the id that the session gets"),
        },
    ),
    "agents": Words(
        "List the agents there are, or check that one works.",
        ("check|", "agent"),
        {
        },
    ),
    "config": Words(
        "Show the configuration as it is in effect, and where each value comes from.",
        (),
        {
        },
    ),
    "completion": Words(
        "Print what a shell has to read to complete what you type.",
        ("bash|zsh|fish",),
        {
        },
    ),
    "recover": Words(
        "Take up the runs that nobody drives: continue them, end them, or say what is missing.",
        (),
        {
            "--watch": ("", "stay, and do so whenever an executor is lost"),
            "--dry-run": ("", "say what would be done; write nothing"),
        },
    ),
    "reconcile": Words(
        "List what nobody knows about a run's operations, or say how one of them ended.",
        ("target", "operation"),
        {
            "--as": ("succeeded|failed|cancelled", "how it ended"),
            "--note": ("text", "how you know, for the record"),
            "--ask": ("", "ask the tools' probes first, and record what they know"),
        },
    ),
    "resume": Words(
        "Continue an unfinished run that nobody drives, or begin an ended one anew.",
        ("target",),
        {
            "--detach": ("", "return at once; the run goes on without this terminal"),
        },
    ),
}
