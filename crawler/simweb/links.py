"""Writes links in many spellings of the same URL (WHATWG URL, section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PlacedLink(NamedTuple):
    """A link on a page: the canonical URL that it means, and the text of its href."""

    url: str
    href: str
    nofollow: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """What relative hrefs are resolved against: a host, and a folder with both its slashes."""

    host: str
    folder: str

    @classmethod
    def of(cls, host: str, target: str) -> Base:
        """The base of a page at `target` (path and query) without <base>."""
        path = target.partition("?")[0]
        return cls(host, path[: path.rindex("/") + 1])


def absolute(host: str, target: str) -> str:
    """The canonical URL."""
    return f"http://{host}{target}"


def spell(host: str, target: str, base: Base, choice: int) -> str:
    """A spelling of the URL, selected by `choice` (0 or more). Relative spellings are used only where possible."""
    spellings = _NEAR if host == base.host else _FAR
    return spellings[choice % len(spellings)](host, target, base)


def spell_fixed(host: str, target: str, base: Base, choice: int) -> str:
    """A plain spelling that means the same URL from any page of the host."""
    return target if host == base.host and choice % 2 else absolute(host, target)


def spell_location(host: str, target: str, base: Base, choice: int) -> str:
    """A spelling for a Location header: a URI reference (RFC 9110 section 10.2.2), ASCII without blanks."""
    if host == base.host and choice % 3 == 0:
        return _relative(host, target, base)
    return spell_fixed(host, target, base, choice)


def split(url: str) -> tuple[str, str]:
    """Host and target of a canonical URL."""
    host, slash, rest = url.removeprefix("http://").partition("/")
    return host, slash + rest


def _upper_host(host: str, target: str, base: Base) -> str:
    return f"HTTP://{host.upper()}{target}"


def _with_port(host: str, target: str, base: Base) -> str:
    return f"http://{host}:80{target}"


def _with_fragment(host: str, target: str, base: Base) -> str:
    return f"http://{host}{target}#part-2"


def _scheme_relative(host: str, target: str, base: Base) -> str:
    return f"//{host}{target}"


def _padded(host: str, target: str, base: Base) -> str:
    return f" \n http://{host}{target} "


def _tracked(host: str, target: str, base: Base) -> str:
    return f"http://{host}{target}{'&' if '?' in target else '?'}utm_source=simweb"


def _plain(host: str, target: str, base: Base) -> str:
    return absolute(host, target)


def _root_relative(host: str, target: str, base: Base) -> str:
    return target


def _root_relative_fragment(host: str, target: str, base: Base) -> str:
    return f"{target}#top"


def _dotted(host: str, target: str, base: Base) -> str:
    return f"/./up/..{target}"


def _raw(host: str, target: str, base: Base) -> str:
    return target.replace("%C3%A9", "é")


def _overescaped(host: str, target: str, base: Base) -> str:
    return target.replace("~", "%7e")


def _relative(host: str, target: str, base: Base) -> str:
    if target.startswith(base.folder) and len(target) > len(base.folder):
        return target[len(base.folder) :]
    return "../" * (base.folder.count("/") - 1) + target[1:] or "./"


_FAR = (_plain, _upper_host, _with_port, _with_fragment, _scheme_relative, _padded, _tracked)
_NEAR = (
    *(_relative, _root_relative, _relative, _root_relative_fragment, _dotted, _raw, _overescaped),
    *_FAR,
)
