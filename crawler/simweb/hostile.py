"""The hostile domains: one kind of attack each, beside a page that a sound crawler still reads.

The root of `h0001-bomb.test` links to /hazard, where the attack is, and to /after, which must be fetched in
any case.
"""

from __future__ import annotations

from crawler.simweb.hazards import Hazard
from crawler.simweb.resource import Resource


class Hostile:
    """The domains for these hazards."""

    def __init__(self, hazards: tuple[Hazard, ...]) -> None:
        self._by_domain = {hazard_domain(number, hazard): hazard for number, hazard in enumerate(hazards, 1)}

    def domains(self) -> list[str]:
        """Their names."""
        return list(self._by_domain)

    def resource(self, host: str, target: str) -> Resource | None:
        """What a hostile host answers; None where nothing is, or when it is no hostile host."""
        return None


def hazard_domain(number: int, hazard: Hazard) -> str:
    """h0001-bomb.test"""
    return f"h{number:04}-{hazard}.test"
