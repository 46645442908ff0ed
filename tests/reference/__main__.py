"""Writes the reference pages in `docs/reference/`."""

from tests.reference.pages import DOCS, PAGES

for name, text in PAGES.items():
    (DOCS / name).write_text(text())
