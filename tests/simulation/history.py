"""The log of a run. Lines are formatted only when they are read."""

from __future__ import annotations

from collections import deque

from tests.simulation.loop import Universe


class Breach(AssertionError):
    """Raised when an invariant does not hold. `about`: the domain, shard or replica that it concerns."""

    def __init__(self, invariant: str, message: str, about: str = "") -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.about = about


class History:
    """Lines of (time, who, what, details). `kept`: the number of the last ones that are kept, None for all."""

    def __init__(self, universe: Universe, kept: int | None = None) -> None:
        self._universe = universe
        self._lines: deque[tuple[float, str, str, object]] = deque(maxlen=kept)

    def note(self, who: str, what: str, details: object = "") -> None:
        self._lines.append((self._universe.now, who, what, details))

    def told(self, about: str = "") -> list[str]:
        """Return the lines that contain `about`."""
        lines = [f"{at:10.4f}  {who:<8} {what:<10} {details}" for at, who, what, details in self._lines]
        return [line for line in lines if about in line]
