"""Whole sessions as one file: packed so that the same tree gives the same bytes, unpacked so that nothing can escape.

An archive is a plain tar file (POSIX ustar, long names as GNU tar has them), so any `tar` lists and reads it. Its first
member is `MANIFEST`; then come the sessions, each in a directory of its name, sorted. Times and owners are left out.
"""

from __future__ import annotations

from agentrun.records.codec import FORMAT_VERSION, Doc

MANIFEST = "agentrun-archive.json"
KIND = "agentrun-archive"

# Deeper than this no directory is packed or unpacked: each level costs a descriptor while it is walked.
DEEPEST = 100


def manifest(account: str) -> Doc:
    """What the first member says."""
    return {"formatVersion": FORMAT_VERSION, "type": KIND, "accountId": account}
