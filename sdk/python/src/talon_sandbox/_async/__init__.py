"""The client, written once; `_sync` is generated from it by tools/unasync.py but for concurrency.py."""
