"""The audit finds whatever is left of a domain that was forgotten: records, lines and index lines."""

from __future__ import annotations

from pathlib import Path

from crawler.audit.check import Rules, audit
from crawler.audit.records import read_archive
from crawler.sinks.forget import DomainRewriter, add_mark
from politeness.delay import DelayPolicy
from tests.sinks.test_forget import GONE, fill

RULES = Rules(DelayPolicy(min_delay_s=0.0), None, "peercrawl", parallel=64)


def found(folder: Path) -> int:
    report = audit(read_archive(folder), RULES)
    assert all(breach.url.startswith(("https://gone.test", "https://www.gone.test")) for breach in report.breaches)
    return report.counts["forgotten"]


def test_whatever_is_left_is_found(tmp_path: Path) -> None:
    fill(tmp_path)
    assert found(tmp_path) == 0  # nobody objected
    add_mark(tmp_path, GONE)
    assert found(tmp_path) == 1
    # in the lines alone,
    kept = {path: path.read_bytes() for path in tmp_path.iterdir() if ".jsonl" not in path.name}
    warcs = [path for path in kept if ".warc" in path.name or path.suffix == ".cdxj"]
    for path in warcs:
        path.unlink()
    assert found(tmp_path) == 1
    for path in warcs:
        path.write_bytes(kept[path])
    # and no more when it was removed,
    DomainRewriter(tmp_path, GONE).rewrite()
    assert found(tmp_path) == 0
    # unless an index still has it.
    (index, *_) = (path for path in warcs if path.suffix == ".cdxj" and b"gone" in kept[path])
    index.write_bytes(kept[index])
    assert found(tmp_path) == 1
