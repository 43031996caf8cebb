"""Attacks from inside a sandbox, as its root; one file for each threat of docs/threat-model.md."""
