"""The kernels of one sandbox: contexts in several languages, driven for the sandbox's agent.

Started by the agent as `python3 -m talon_bridge`, with a unix socket as descriptor 0; `link` is what is said there. Runs
in the sandbox, as its user, and trusts nobody but the agent. Invariant: each execution ends with exactly one event that
is `complete` or `error`.
"""
