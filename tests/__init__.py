"""Tests that need a running platform; those of one package alone stand beside it (server/tests, sdk/python/tests, agent)."""
