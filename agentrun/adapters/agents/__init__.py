"""Agents from outside: each drives a run in a program of its own."""
