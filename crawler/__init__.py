"""The crawler: seeds in, a polite crawl by any number of replicas, pages out."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("peercrawl")
