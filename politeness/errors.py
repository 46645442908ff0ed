"""What may go wrong in deciding whether and when to fetch."""

from __future__ import annotations


class PolitenessError(Exception):
    """Raised when politeness cannot answer; the base of all its errors."""


class BadRecord(PolitenessError):
    """Raised when stored bytes are not a robots record of this version. Fetching robots.txt again is right."""
