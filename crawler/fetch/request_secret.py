"""A secret of `[[requests]]`, such as a password or a token: it is sent, and its representation does not show it."""

from __future__ import annotations


class Secret:
    """A text whose representation does not show it, so that it does not get into logs and messages by accident."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<Secret>"

    def __bool__(self) -> bool:
        return bool(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)
