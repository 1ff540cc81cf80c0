"""Models that the loop can be driven by."""
