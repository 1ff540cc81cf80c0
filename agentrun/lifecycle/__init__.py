"""Decisions about sessions and runs: where an input goes, who goes on, what a lost run needs."""
