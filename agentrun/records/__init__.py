"""What is on disk, as frozen types; nothing here reads a file or a clock.

`docs/format.md` describes the same fields for people with `jq`.
"""
