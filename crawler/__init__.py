"""The crawler: seeds in, a polite crawl by any number of replicas, pages out."""

__version__ = "0.1.0"
"""The package takes its version from here: to read a package's metadata takes 40 ms, which no command needs."""
