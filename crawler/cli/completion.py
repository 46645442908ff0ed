"""What the shell completes: the words that an option or argument takes, if they come from a closed list."""

from __future__ import annotations

from crawler.errors import FailureKind

PRESETS = ("polite", "own-site", "broad", "archive", "continuous")
SCOPES = ("seeds", "domains", "hosts", "any")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json")

REASONS = tuple(
    sorted(
        {
            *(
                {str(kind) for kind in FailureKind}
                - {"lease_expired", "stopped", "stale_connection", "our_dns", "machine", "proxy"}
            ),
            *("robots_unreachable", "robots", "usage", "usage_unreachable"),
            *("blocked", "crawl_delay", "defect", "payment_required", "handler_failed", "handler_timeout"),
            *(
                "lost_with_holder",
                "redirect_loop",
                *(f"http_{status}" for status in (408, 425, 429, 500, 502, 503, 504, *range(520, 525))),
            ),
        }
    )
)
"""Why URLs are given up or denied. The kinds of failures that are left out say nothing about the URL."""


def presets(incomplete: str) -> list[str]:
    return _starting(incomplete, PRESETS)


def scopes(incomplete: str) -> list[str]:
    return _starting(incomplete, SCOPES)


def reasons(incomplete: str) -> list[str]:
    return _starting(incomplete, REASONS)


def log_levels(incomplete: str) -> list[str]:
    return _starting(incomplete, LOG_LEVELS)


def log_formats(incomplete: str) -> list[str]:
    return _starting(incomplete, LOG_FORMATS)


def setting_names(incomplete: str) -> list[str]:
    """The tables, the settings as "table.key", and once something is typed, their keys alone."""
    from crawler.settings import reference  # noqa: PLC0415 - slow to import, and only needed for this completion

    names = [one.name for one in reference.all_settings()]
    tables = [*reference.tables(), *reference.repeated()]
    keys = [name.partition(".")[2] for name in names] if incomplete else []
    return _starting(incomplete, tuple(dict.fromkeys((*tables, *names, *keys))))


def _starting(incomplete: str, words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
