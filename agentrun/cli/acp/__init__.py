"""`agentrun acp`: an editor drives our sessions by the Agent Client Protocol, version 1, over stdin and stdout."""
