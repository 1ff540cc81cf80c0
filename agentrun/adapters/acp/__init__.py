"""Agents that speak the Agent Client Protocol, version 1 (https://agentclientprotocol.com).

The extra `acp` brings the library, which is imported when a run needs it.
"""
