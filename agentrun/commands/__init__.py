"""What each command does, as plain functions that return records and raise errors; nothing here prints."""
