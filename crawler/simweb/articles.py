"""Products and news, which are known without reading the pages that have them.

With `Features.articles`, each numbered page in /shop/ has a product, and each one in /news/ a story.
"""

from __future__ import annotations

from typing import NamedTuple

from crawler.simweb.chance import draw
from crawler.simweb.links import split

_WORDS = ("amber", "brass", "cedar", "delta", "ember", "flint", "grove", "haven")


class Product(NamedTuple):
    """`price`: with two decimals."""

    name: str
    price: float

    @property
    def html(self) -> str:
        """The product as it is in its page."""
        return f'<div class="product"><h2>{self.name}</h2> <span class="price">{self.price:.2f} EUR</span></div>\n'


class Story(NamedTuple):
    """`published`: an ISO date."""

    headline: str
    published: str

    @property
    def html(self) -> str:
        """The story as it is in its page."""
        return f'<div class="story"><h2>{self.headline}</h2> <time datetime="{self.published}">then</time></div>\n'


def article(seed: int, url: str) -> Product | Story | None:
    """The article of the page at the canonical `url`, None if it has none."""
    bits = draw(seed, "article", url)
    words = " ".join(_WORDS[bits >> shift & 7] for shift in (0, 3, 6))
    match split(url)[1].split("/")[1]:
        case "shop":
            return Product(f"{words} {bits % 10_000}", (bits >> 9) % 100_000 / 100)
        case "news":
            return Story(f"{words} {bits % 10_000}", f"2024-{(bits >> 9) % 12 + 1:02}-{(bits >> 13) % 28 + 1:02}")
    return None
