"""The rows of the guides for users of other crawlers, and the programs that a test makes of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.test_docs import ROOT, without_blocks

GUIDES = [ROOT / "docs" / "how-to" / f"from-{name}.md" for name in ("scrapy", "crawlee")]

PAGES = {"page.json": "http://quotes.test/api/quotes?page=1", "page.form": "http://quotes.test/login"}
"""What code that needs another page than that of the products has in it, and the page."""

OF_PAGES = "page: ParsedPage, crawl: Handle"
PARAMETERS = {
    "on_start": "crawl: Context",
    "on_end": "crawl: Context",
    "before_request": "request: OutgoingRequest, crawl: Context",
    "after_response": "request: OutgoingRequest, exchange: Exchange | None, crawl: Context",
    "on_item": "name: str, item: dict[str, object], crawl: Context",
}
"""Parameters of functions, by what registers them."""

HEAD = """from __future__ import annotations

import logging

from crawler import Context, Crawl, Exchange, Handle, OutgoingRequest, ParsedPage, Retry, Router

router = Router()
"""


def rows(heading: str) -> Iterator[str]:
    """The code in the second column of the tables below `heading`."""
    for guide in GUIDES:
        section = without_blocks(guide.read_text()).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        cells = re.findall(r"^\| .* \| (.*) \|$", section, re.MULTILINE)
        for cell in cells[1:]:
            yield from re.findall(r"`([^`]+)`", re.sub(r"\[.*?\]\(.*?\)", "", cell))


def handlers() -> dict[str, str]:
    """Code in handlers -> the URL of a page for it."""
    urls = {code: next((url for part, url in PAGES.items() if part in code), "") for code in rows("In handlers")}
    return {
        code: url or f"http://shop.test/products?row={number}"
        for number, (code, url) in enumerate(urls.items())
        if "handlers." not in code
    }


def of_handlers() -> str:
    """A module with a function for each row, by its label."""
    text = HEAD
    for number, code in enumerate(handlers()):
        text += (
            f'\n\n@router.handler(label="row_{number}")\n'
            f"async def row_{number}(page: ParsedPage, crawl: Handle) -> None:\n    {statement(code)}\n"
        )
    for number, code in enumerate(rows("Which function handles what")):
        name = code.removeprefix("@router.").partition("(")[0]
        text += f"\n\n{code}\ndef function_{number}({PARAMETERS.get(name, OF_PAGES)}) -> None:\n    pass\n"
    return text


def of_programs() -> str:
    """A program that makes a crawl, and does what the rows say: before it runs, while it runs, and afterwards."""
    made, running, after = list[str](), list[str](), list[str]()
    for code in dict.fromkeys(rows("In programs")):
        if code.startswith("Crawl("):
            made.append(f"_ = {code}")
        elif code.startswith("await ") or code == "crawl.stop()":
            running.append(code)
        elif "crawl.run(" in code:
            made += [f"crawl = {MADE}", code]
        else:
            after.append(statement(code))
    lines = [*made, *after]
    inner = "".join(f"        {line}\n" for line in running)
    return (
        f"{HEAD.replace('import logging', 'import asyncio')}\n\n"
        '@router.handler("/product/")\n'
        "def product(page: ParsedPage, crawl: Handle) -> None:\n"
        '    crawl.push("products", {"name": page.select_text("h1")})\n\n\n'
        + "\n".join(lines)
        + "\n\n\nasync def main() -> None:\n"
        + f'    async with Crawl(handlers=router, keep_open=True, name="open") as crawl:\n{inner}\n\n'
        + "asyncio.run(main())\n"
    )


MADE = 'Crawl(["http://shop.test/product/1", "http://shop.test/product/2"], handlers=router, again=True)'


def statement(code: str) -> str:
    """`code` as a statement: type checkers report a value that nothing uses."""
    try:
        value = ast.parse(code, mode="eval").body
    except SyntaxError:
        return code
    return code if isinstance(value, (ast.Await, ast.Call)) else f"_ = {code}"
