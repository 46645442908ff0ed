"""What may go wrong in the crawler. The first split is whose fault it is: the operator's, or the site's."""

from __future__ import annotations

from enum import StrEnum

TRY_LATER = 75
"""Exit code of a command that found no Redis (EX_TEMPFAIL of sysexits.h): it may be restarting."""


class CrawlerError(Exception):
    """Raised when the crawler cannot go on as it was told; the base of all its errors."""


class UserError(CrawlerError):
    """Raised when the operator can put it right; the message is one line and says how."""


class SettingsDiffer(UserError):
    """Raised when a start has other settings than its crawl. `differences`: one line each. `named`: those that the start
    would change, as the user has given them."""

    def __init__(self, crawl: str, differences: tuple[str, ...], named: tuple[str, ...]) -> None:
        apply = f", or --apply-settings to change {', '.join(named)}" if named else ""
        super().__init__(
            f"crawl {crawl!r} has other settings than this command, so nothing was started or changed: add --keep-settings "
            f"to go on with those of the crawl{apply}"
        )
        self.differences = differences


class DataDirError(UserError):
    """Raised when the data directory cannot hold the embedded store."""


class SinkFull(CrawlerError):
    """Raised when a sink has no room for the records; the same call may be made again."""


class FailureKind(StrEnum):
    """Why a request brought no response: the closed list that counters, metrics and retry policy use."""

    BAD_URL = "bad_url"  # not an http or https URL that can be asked for
    FORBIDDEN_PORT = "forbidden_port"
    FORBIDDEN_ADDRESS = "forbidden_address"  # every address of the host is one that we must not connect to
    NO_SUCH_HOST = "no_such_host"  # the DNS says so with authority
    DNS = "dns"  # the DNS did not answer, or could not now
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    LEASE_EXPIRED = "lease_expired"  # ours: the lease ended before the request could be written
    STOPPED = "stopped"  # ours: the fetcher is shutting down
    STALE_CONNECTION = "stale_connection"  # a kept-alive connection closed under our request: nobody's fault
    DISCONNECTED = "disconnected"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"  # what came was not HTTP/1.0 or HTTP/1.1
    HEADER_TOO_LARGE = "header_too_large"


class FetchFailed(CrawlerError):
    """Raised when a request brought no response head.

    `request_sent` tells whether a request may have reached the site: only then does its delay begin anew.
    """

    def __init__(self, kind: FailureKind, detail: str = "", *, request_sent: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else str(kind))
        self.kind = kind
        self.detail = detail
        self.request_sent = request_sent
