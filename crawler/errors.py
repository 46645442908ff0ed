"""The errors of the crawler. `UserError` is for mistakes that the operator can fix, `FetchFailed` for failed requests."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from crawler.wording import count_of

UPLOADS_LEFT = 3
"""The exit code of a crawl or a repeated upload after which files are not in the store yet."""

TRY_LATER = 75
"""Exit code when Redis cannot be reached, or the crawl is being resharded (EX_TEMPFAIL in sysexits.h): retry later."""


SIMILAR = 0.75
"""The least similarity of a name that a message suggests, as `difflib` measures it. With its default, 0.6, "paws" is
similar to "pause", and "depth" to "fetch"."""


def closest(typed: str, known: Iterable[str], most: int = 1, least: float = SIMILAR) -> list[str]:
    """Return up to `most` of the names in `known` that are most like `typed`, with a similarity of at least `least`."""
    from difflib import get_close_matches  # noqa: PLC0415 - few commands fail

    return get_close_matches(typed, list(dict.fromkeys(known)), n=most, cutoff=least)


def reason_of(error: Exception, path: Path) -> str:
    """Return why the file at `path` cannot be used, for a message that names it: of an OSError its text without the number,
    and with its path only if that is another one."""
    if not (isinstance(error, OSError) and error.strerror):
        return str(error)
    is_named = error.filename is None or str(error.filename) == str(path)
    return error.strerror if is_named else f"{error.strerror}: {error.filename}"


class CrawlerError(Exception):
    """Base class of all errors of the crawler."""


class UserError(CrawlerError):
    """Raised for a mistake that the operator can fix. The message is one line and says how. `details`: lines to show
    before it."""

    details: tuple[str, ...] = ()

    def reword(self, change: Callable[[str], str]) -> None:
        """Change the words of the message."""
        self.args = (change(str(self)),)


class SettingsInvalid(UserError):
    """Raised for settings that cannot be used. `problems`: one line for each, with the place where it is set."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        if len(problems) > 1:
            self.details = problems
            counted = count_of(len(problems), "setting")
            problems = (f"{counted} cannot be used; `crawler config explain NAME` describes a setting",)
        super().__init__(*problems)


class SettingsDiffer(UserError):
    """Raised when a command's settings differ from those of its crawl. `details`: one line for each. `named`: the
    settings that `--apply-settings` would change, because the user gave them explicitly."""

    def __init__(self, crawl: str, differences: tuple[str, ...], named: tuple[str, ...]) -> None:
        apply = f", or --apply-settings to change {', '.join(named)}" if named else ""
        super().__init__(
            f"crawl {crawl!r} has other settings than this command, so nothing was started or changed: add --keep-settings "
            f"to go on with those of the crawl{apply}"
        )
        self.details = differences


class DataDirError(UserError):
    """Raised when the embedded server cannot use the data directory or cannot be started there."""


class SinkFull(CrawlerError):
    """Raised when a sink has no room for the records, or this machine lacks something to write them. The caller may repeat
    the call."""


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})
"""EAGAIN: no process can be started."""

_NO_FILES = "Too many open files"  # all that an ImportError says of a library that cannot be opened


def is_machines_fault(error: BaseException | None) -> bool:
    """Return whether this machine lacks what `error` says: file descriptors, memory or processes. This passes, and says
    nothing about the page or site that was being handled."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OURS:
            return True
        if isinstance(error, ImportError) and _NO_FILES in str(error):
            return True
        error = error.__cause__
    return False


class FailureKind(StrEnum):
    """Why a request got no response. Counters, metrics and the retry policy use this closed list."""

    BAD_URL = "bad_url"  # not an http or https URL that can be requested
    FORBIDDEN_PORT = "forbidden_port"
    FORBIDDEN_ADDRESS = "forbidden_address"  # the address policy forbids every address of the host
    NO_SUCH_HOST = "no_such_host"  # an authoritative DNS answer
    DNS = "dns"  # the DNS fails for this host, but answers for others
    OUR_DNS = "our_dns"  # ours: the DNS fails or knows no host, and nothing shows that it works for others
    MACHINE = "machine"  # ours: no file descriptor, memory, port or route is left, or there are no trusted authorities
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    OTHER_ADDRESS = "other_address"  # the connection leads to another address than the one whose slot was taken
    LEASE_EXPIRED = "lease_expired"  # ours: the lease ended before the request could be written
    STOPPED = "stopped"  # ours: the fetcher is shutting down
    STALE_CONNECTION = (
        "stale_connection"  # the server closed a kept-alive connection as we sent the request; not an error of the site
    )
    DISCONNECTED = "disconnected"
    TIMEOUT = "timeout"
    PROXY = "proxy"  # ours: the operator's proxy cannot be reached, or refuses its client
    PROTOCOL = "protocol"  # the response was not HTTP/1.0 or HTTP/1.1
    HEADER_TOO_LARGE = "header_too_large"
    DROPPED = "dropped"  # by a function of the router (`crawler.handlers.middlewares`)
    DELAYED = "delayed"  # ours: the same
    RESPONSE_DROPPED = "response_dropped"  # such a function does not want the response
    NOT_ACCEPTED = "response_retry"  # such a function asks for another response
    MIDDLEWARE = "middleware_failed"  # such a function failed

    @property
    def in_words(self) -> str:
        return _WORDS.get(self, self.replace("_", " "))


_WORDS = {
    FailureKind.DNS: "no answer from the DNS",
    FailureKind.REFUSED: "connection refused",
    FailureKind.TLS: "no TLS connection",
    FailureKind.TIMEOUT: "no answer in time",
    FailureKind.PROTOCOL: "no HTTP response",
}

OURS = frozenset({FailureKind.OUR_DNS, FailureKind.MACHINE, FailureKind.PROXY})
"""Failures of this machine, its network or its operator's proxy. They pass, and the domain waits until then."""

NOT_THE_URLS_FAULT = OURS | {
    FailureKind.OTHER_ADDRESS,
    FailureKind.LEASE_EXPIRED,
    FailureKind.STOPPED,
    FailureKind.STALE_CONNECTION,
    FailureKind.DELAYED,
}
"""Failures that say nothing about the URL: those that are ours, the end of our lease or process, an idle connection that
the server closed, one to an address that has a slot of its own, and a request that has to wait."""


class FetchFailed(CrawlerError):
    """Raised when a request got no complete response head.

    `request_sent` says whether the request may have reached the site. Only then does the domain's delay start again.
    """

    def __init__(self, kind: FailureKind, detail: str = "", *, request_sent: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else str(kind))
        self.kind = kind
        self.detail = detail
        self.request_sent = request_sent

    @property
    def reason(self) -> str:
        """The kind as one word."""
        return str(self.kind)

    @property
    def in_words(self) -> str:
        """Kind and detail for people."""
        return f"{self.kind.in_words} ({self.detail})" if self.detail else self.kind.in_words


class BrowserFailed(CrawlerError):
    """Raised when no browser can be started, or none is tried for a while because several have failed."""


REFUSALS = frozenset(
    {
        *("backoff", "bad_url", "blocked", "interrupted", "no_answer", "offline", "rate", "redirects", "redis_away"),
        *("robots", "robots_unreachable", "too_late", "too_many", "truncated", "usage", "usage_unreachable"),
    }
)
"""The reasons of requests that are not made, besides `http_` and a status."""


class Refused(CrawlerError):
    """Raised for a request that is not made. `reason`: one word, such as "robots" or "blocked"."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
