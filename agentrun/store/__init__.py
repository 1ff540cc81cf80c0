"""Disks, locks and records: the tree of sessions and runs, and the only code that writes into it."""
