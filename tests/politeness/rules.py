"""What the tests of robots.txt rules share."""

from __future__ import annotations

from politeness.robots_match import Rules


def allowed(body: str | bytes, url: str, token: str = "ourbot") -> bool:
    data = body.encode() if isinstance(body, str) else body
    return Rules.parse(data, token).decide(url).allowed


def group(*rules: str) -> str:
    return "User-agent: *\n" + "\n".join(rules) + "\n"
