"""The version of the distribution; read by the build, the User-Agent header and `tsb --version`."""

__version__ = "0.1.0"
