"""Where a crawl's results become files: WARC 1.1 for what went over the wire, JSON lines for what was made of it.

How a group of pages becomes durable, in the order in which data flows:

1. `Archive.write` hands the whole group to the archive's one worker thread. A group, not a page, crosses over, so the
   hop costs the event loop microseconds; the digests and the compression run without the interpreter's lock.
2. `warc` turns each HTTP exchange into a request and a response record, and what was found in the page into a metadata
   record, each compressed alone (`compression`). So each page has its place: file, offset, length, which goes into the
   `index`. What a page says (`content`) is looked at before, if it is wanted, and whether an earlier one said the same
   (`likeness`, `simhash`): then its records may be left out.
3. `pages` turns each settled URL into one JSON line that carries the place.
4. `segment` appends the records, then the lines, to the two files of the current volume. If anything fails, both files
   are cut back to where they stood, so the same group can be written again and no half record stays. Pages of the last
   group that turn out not to be settled are taken back (`tail`).
5. When the files are finished, the `index` of the WARC file is written beside it, sorted. What else shall become of them,
   a `parquet` file of the lines or an `upload` to an object store, is done by `finished`, in a thread of its own.

A volume is one WARC file and its sibling with the JSON lines, `<crawl>-<replica>-<timestamp>-<serial>.warc.gz` (or
`.warc.zst`) and `.pages.jsonl`, and in the end `.cdxj`. While written they end in `.open` and are locked. When full or
old, and at the end, they are renamed. `recovery` finishes the files of writers that died.
"""

from crawler.sinks.archive import Archive, Keeper, Sink
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.tee import SinkContext, Tee

__all__ = ["Archive", "ArchiveSettings", "Keeper", "Sink", "SinkContext", "Tee"]
