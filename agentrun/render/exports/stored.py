"""One JSON document with everything that is stored of a session or a run: the lines of its logs as they are."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.records.codec import FORMAT_VERSION
from agentrun.records.exported import Export
from agentrun.render.exports.pieces import array, compact, head


def write(export: Export) -> Iterator[bytes]:
    """`{formatVersion type session runId messages runs}`, each run `{run operations report}`."""
    about = {"formatVersion": FORMAT_VERSION, "type": "agentrun-export", "session": export.session.to_doc()}
    yield head(about | {"runId": export.run_id}) + b',\n"messages":'
    yield from array(message.to_doc() for message in export.messages())
    yield b',\n"runs":['
    separator = b"\n"
    for run in export.runs():
        yield separator + head({"run": run.view.to_doc()}) + b',\n"operations":'
        yield from array(event.to_doc() for event in run.events())
        yield b"," + compact({"report": run.report()})[1:]
        separator = b",\n"
    yield b"]}\n"
