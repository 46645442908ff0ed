"""The errors of the politeness layer."""

from __future__ import annotations


class PolitenessError(Exception):
    """Raised when the politeness layer cannot give an answer; the base of its errors."""


class BadRecord(PolitenessError):
    """Raised when stored bytes are not a robots.txt record of this version. The file has to be fetched again."""
