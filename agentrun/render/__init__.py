"""Turns records into text. Reads no file and no environment: what the terminal can do comes in (`Screen`)."""
