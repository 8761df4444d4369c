"""Starts the real programs for a test, and talks to them. integration/README.md says how it is used."""
