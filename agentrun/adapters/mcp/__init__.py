"""Tools that a server offers by the Model Context Protocol (https://modelcontextprotocol.io), over stdio or HTTP.

A server is started, or connected to, once per stretch of a run, and ended with it. The extra `mcp` brings the library,
which is imported when a run needs it.
"""
