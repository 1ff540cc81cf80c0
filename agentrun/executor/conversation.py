"""What came before a run, as far as its agent may choose from it."""

from __future__ import annotations

from itertools import islice

from agentrun.agent.protocols import Conversation
from agentrun.records.run import Run
from agentrun.store.sessions import SessionDir

# The context layer chooses from these; what is older is for its summary.
MESSAGES = 200


def earlier_conversation(session: SessionDir, run: Run) -> Conversation:
    """The session's messages before the prompt of `run`, and the reports that it cites."""
    document = session.read()
    # Of copied lines the model learns whose run they speak of: that is no run of this session.
    earlier = (
        message._replace(run_id=document.run_of(message))
        for message in session.messages_backward()
        if message.seq < run.message_seq
    )
    reports = {run_id: session.run(run_id).report() or "" for run_id in run.references}
    return Conversation(list(islice(earlier, MESSAGES))[::-1], reports)
