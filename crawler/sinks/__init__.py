"""The output of a crawl: WARC 1.1 files with what was sent and received, and JSON lines with what was found.

How a group of pages becomes durable:

1. `sink` passes the group to additional sinks, if there are any, and then to the archive.
2. `archive` makes the records: in the event loop, in slices, or in its one thread if they are expensive. All that waits
   for the disk happens in the thread. `near_duplicates` may leave out pages like earlier ones.
3. `warc` turns each HTTP exchange into a request and a response record, or a revisit record if the same body is in the
   archive already, and what was found in the page into a metadata record. Each is compressed separately
   (`compression`). The place of the response goes into the index (`cdxj`), and into the JSON line (`lines`).
4. `journal` stores the leases of the group. Then records and lines are appended to the two files of the current
   `volume` (`files`). If that fails, the files are cut back, and the group can be written again. Pages that turn out
   not to be settled are removed again.
5. When the files are finished, the sorted index is written. `upload` converts the lines with `parquet` and copies the
   files.
6. At the next start, or with `crawler finish`, `recovery` finishes the files of crashed writers.

A volume is a WARC file and its JSON lines, `<crawl>-<replica>-<timestamp>-<serial>.warc.gz` (or `.warc.zst`) and
`.pages.jsonl`, and at the end `.cdxj`. While files are being written, their names end in `.open`, and they are locked.

Commands read the files of a crawl: `export` converts WARC files to rows (`reader`) or `markdown_files`, `wacz` packs
them, and `last_visits` says what the last visit of each page has found. `items` and `postgres` write data sets.
`forget` rewrites the files without a domain whose owner objected.
"""

from crawler.sinks.sink import Sink, SinkContext

__all__ = ["Sink", "SinkContext"]
