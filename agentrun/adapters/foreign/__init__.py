"""Readers of what other programs keep of their conversations. They read, and execute and open nothing else."""
