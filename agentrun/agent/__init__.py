"""What an agent does in a run: conversations, models and tools, and no disk."""
