"""A polite web crawler: it starts from seed URLs, runs in any number of replicas, and writes pages to files."""

__version__ = "0.1.0"
"""The build reads the version from here. Reading it from the package metadata instead would cost each command 40 ms."""
