"""Renders a page under a seccomp profile of Docker's kind, and prints what keeps the browser in.

python -m tests.browser.contained deploy/chromium-seccomp.json
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from crawler.browser.process import find_isolation
from tests.browser.test_renderer import visitor

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
OPERATORS = {"SCMP_CMP_LT": 2, "SCMP_CMP_EQ": 4, "SCMP_CMP_GT": 6, "SCMP_CMP_MASKED_EQ": 7}
EPERM, UNKNOWN_CALL = 1, -1


class Condition(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def apply_profile(profile: dict[str, Any]) -> None:
    """Forbid this process and those that it starts what `profile` forbids, as container engines do."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ERRNO | EPERM))
    for rule in profile["syscalls"]:
        wanted = [
            Condition(one["index"], OPERATORS[one["op"]], one["value"], one.get("valueTwo", 0))
            for one in rule.get("args", ())
        ]
        conditions = (Condition * len(wanted))(*wanted)
        action = ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else ERRNO | rule["errnoRet"]
        for name in rule["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            if number != UNKNOWN_CALL:
                assert seccomp.seccomp_rule_add_array(context, action, number, len(wanted), conditions) == 0, name
    assert seccomp.seccomp_load(context) == 0


async def main() -> None:
    isolation = find_isolation("auto")
    async with visitor() as v:
        outcome = (await v.visit("/app")).outcome
    print(isolation.kind, isolation.is_sandboxed, outcome)


if __name__ == "__main__":
    apply_profile(json.loads(Path(sys.argv[1]).read_text()))
    asyncio.run(main())
