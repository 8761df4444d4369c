"""Starts the real programs for a test, and talks to them. README.md says how it is used."""
