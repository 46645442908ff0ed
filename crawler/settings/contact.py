"""Whether webmasters can reach the operator of a crawl: `fetch.contact` has to be set if it leaves the operator's own
hosts. Nobody can tell whose a host is, so this looks at the settings that are only meant for one's own."""

from __future__ import annotations

from crawler.errors import UserError
from crawler.settings.crawl_tables import HOME_PAGE
from crawler.settings.loading import CrawlSettings

UNSET = "fetch.contact is not set, so webmasters cannot reach you: give your web page or email address"


def missing_contact(settings: CrawlSettings) -> str:
    """Return that the contact is missing, "" if it is set or not needed. Raises UserError if a crawl of the whole web, such
    as one with the preset `broad`, has none."""
    if settings.fetch.contact != HOME_PAGE or is_of_own_hosts(settings):
        return ""
    if settings.scope.kind == "any":
        raise UserError(f'{UNSET}, which a crawl of the whole web (scope.kind = "any") needs, in [fetch] contact')
    return UNSET


def is_of_own_hosts(settings: CrawlSettings) -> bool:
    """Return whether the settings are those of a crawl of one's own hosts: no delay, hosts that are mapped to addresses, or
    addresses that are not public."""
    fetch = settings.fetch
    return not settings.politeness.delay or bool(fetch.host_map or fetch.allow_private or fetch.allow)
