"""Documents that a session can be without: one that is damaged is kept aside, and made again where the log tells it.

Neither is what anything is decided by. The fence is the generation in the log, whatever `lease.json` says; what a
summary stands for is all still there.
"""

from __future__ import annotations

import os

from agentrun import clock
from agentrun.errors import NewerFormat
from agentrun.records.codec import check_replaceable, encode_document
from agentrun.records.finding import Finding, Kind
from agentrun.records.lease import Lease, Owner
from agentrun.states import EventType
from agentrun.store import layout
from agentrun.store.aside import keep_aside
from agentrun.store.deadlines import new_lease
from agentrun.store.disk import Directory
from agentrun.store.runs import RunDir
from agentrun.store.summaries import summary_in
from agentrun.store.writer import Writer


def set_aside(writer: Writer, finding: Finding) -> bool:
    """Puts right what `finding` tells of a lease or a summary; False if it is of neither."""
    if finding.kind is not Kind.DAMAGED:
        return False
    name = os.path.basename(finding.path)
    if name == layout.LEASE and finding.run_id is not None:
        _set_lease_aside(writer.session.run(finding.run_id))
    elif name == layout.SUMMARY and finding.run_id is None:
        _set_summary_aside(writer)
    else:
        return False
    return True


def _set_lease_aside(run_dir: RunDir) -> None:
    if run_dir.lease() is not None:
        return  # its executor has renewed it in the meantime
    told = _told_lease(run_dir)
    _keep_only_aside(run_dir.directory, layout.LEASE)
    if told is not None:
        run_dir.directory.replace(layout.LEASE, encode_document(told.to_doc()))


def _told_lease(run_dir: RunDir) -> Lease | None:
    """The lease that the log tells of; None if nobody has one, or the log does not tell.

    It runs from now: an executor that is alive has all its time to renew it before it counts as frozen.
    """
    run = run_dir.load()
    if run.is_over or run.lease_owner is None or run_dir.unread(run):
        return None
    for event in run_dir.events.backward(run_dir.event):
        if event.type == EventType.RUN_LEASE_ACQUIRED and event.generation == run.generation:
            try:
                seconds = clock.seconds_of(str(run.lease_expires_at)) - clock.seconds_of(event.at)
                return new_lease(run.generation, Owner.from_doc(run.lease_owner), seconds, run.usage["executingMs"])
            except ValueError:
                return None
    return None


def _set_summary_aside(writer: Writer) -> None:
    directory = writer.session.directory
    data = directory.read(layout.SUMMARY)
    if data is None:
        return
    try:
        summary_in(writer.session, data)
    except NewerFormat:
        return
    except ValueError:
        _keep_only_aside(directory, layout.SUMMARY)


def _keep_only_aside(directory: Directory, name: str) -> None:
    """Moves what is stored as `name` aside. Raises NewerFormat for what is not ours to move."""
    data = directory.read(name)
    if data is None:
        return
    check_replaceable(data, directory.at(name))
    keep_aside(directory, layout.damaged_name(name, 0), data)
    directory.remove(name)
    directory.sync()
