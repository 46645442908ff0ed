"""What may go wrong in the crawler. The first split is whose fault it is: the operator's, or the site's."""

from __future__ import annotations


class CrawlerError(Exception):
    """Raised when the crawler cannot go on as it was told; the base of all its errors."""


class UserError(CrawlerError):
    """Raised when the operator can put it right; the message is one line and says how."""


class DataDirError(UserError):
    """Raised when the data directory cannot hold the embedded store."""
