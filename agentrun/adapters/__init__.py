"""What agentrun talks to and starts: processes, models, tools, agents."""
