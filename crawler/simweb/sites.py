"""All domains of a synthetic web by number, with their sizes. The domains themselves are created on demand."""

from __future__ import annotations

from array import array
from functools import lru_cache

from crawler.simweb.features import Features
from crawler.simweb.site import Site, Tables, domain_number, domain_of

# A site takes about 1 KiB, so the cache stays below 4 MiB.
_SITES_KEPT = 4096


class Sites:
    """`pages` pages over `domains` domains. Raises ValueError if there are fewer pages than domains."""

    def __init__(self, seed: int, domains: int, pages: int, features: Features) -> None:
        if not 0 < domains <= pages:
            raise ValueError(f"{domains} domains need at least {domains} pages, not {pages}")
        self._sizes = zipf_sizes(domains, pages, features.zipf)
        tables = Tables.of(features)
        make = lru_cache(maxsize=_SITES_KEPT)(lambda n: Site(seed, features, tables, n, self._sizes[n]))
        self._make = make

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, number: int) -> Site:
        """Domain number `number`. Raises IndexError if there is none."""
        return self._make(number)

    def find(self, host: str) -> Site | None:
        """The domain that has this host, or None."""
        number = domain_number(domain_of(host))
        if number is None or number >= len(self._sizes):
            return None
        site = self[number]
        return site if host in site.robots else None


def zipf_sizes(domains: int, pages: int, exponent: float) -> array[int]:
    """Sizes of at least 1 in proportion to 1 / rank ** exponent, largest first, that add up to `pages`."""
    weights = [rank**-exponent for rank in range(1, domains + 1)]
    spare = pages - domains
    scale = spare / sum(weights)
    sizes = array("q", (1 + int(weight * scale) for weight in weights))
    for index in range(pages - sum(sizes)):
        sizes[index % domains] += 1
    return sizes
