"""The process that drives a run: joins the tree and an agent, and is the only place where both are known.

It claims the run, stores each thing the agent reports before the agent goes on, notices a stop within milliseconds,
and commits the end. What it remembers is on disk; what it holds (connections, child processes) ends with it.
"""
