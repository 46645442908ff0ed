"""All domains of a synthetic web by number: how many pages each has, and the domain itself when asked for."""

from __future__ import annotations

from array import array
from functools import lru_cache

from crawler.simweb.features import Features
from crawler.simweb.site import Site, Tables, domain_number, domain_of

# A site weighs about 1 KiB, so that the cache stays below 4 MiB.
_SITES_KEPT = 4096


class Sites:
    """`pages` pages over `domains` domains. Raises ValueError if there are fewer pages than domains."""

    def __init__(self, seed: int, domains: int, pages: int, features: Features) -> None:
        if not 0 < domains <= pages:
            raise ValueError(f"each of the {domains} domains needs a page, and there are {pages} pages")
        self._sizes = zipf_sizes(domains, pages, features.zipf)
        tables = Tables.of(features)
        make = lru_cache(maxsize=_SITES_KEPT)(lambda n: Site(seed, features, tables, n, self._sizes[n]))
        self._make = make

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, number: int) -> Site:
        """The domain with this number. Raises IndexError from `len(self)` on."""
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
