"""The HTML files of the status pages, and the policy that keeps text from strangers from becoming a script or a style."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path


class Template:
    """An HTML file of this package with placeholders of the form `{{name}}`.

    `policy`: a Content-Security-Policy that allows only the scripts and styles of the file. It is made before anything is
    filled in, so a script that a stranger manages to insert has no hash in it and does not run.
    """

    def __init__(self, name: str) -> None:
        self._text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        self.policy = (
            f"default-src 'none'; script-src {self._hashes('script')}; style-src {self._hashes('style')}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )

    def _hashes(self, tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", self._text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
        return " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the page. The values must be HTML; placeholders in them are not replaced."""
        return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], self._text)
