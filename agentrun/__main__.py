"""`python -m agentrun` is the same as the `agentrun` command."""

from agentrun.cli.main import main

main()
