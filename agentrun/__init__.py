"""Sessions and runs of AI agents on a plain directory tree, with one writer at a time.

The command line is `agentrun`; the tree it keeps is described in `docs/format.md`.
"""

# A constant, since reading package metadata costs 40 ms at every start.
__version__ = "0.1.0"
