"""The example of docs/how-to/use-the-peer-loop.md runs: several processes' worth of mail senders share the mailboxes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.valkey import ValkeyProcess

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "use-the-peer-loop.md"


async def test_three_mail_senders_share_the_mailboxes(valkey: ValkeyProcess) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    shares = await asyncio.gather(*(names["send_mail"](valkey.url, rounds=3) for _ in range(3)))
    # One that ends a moment earlier leaves its share to the others: nothing is left out, and everybody had something.
    assert {mailbox for share in shares for mailbox in share} == set(names["MAILBOXES"])
    assert all(shares)
