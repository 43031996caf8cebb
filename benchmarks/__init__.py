"""Measures the platform beside its peers in one run, so that figures are ratios; `python -m benchmarks --help`."""
