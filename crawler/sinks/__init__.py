"""The output of a crawl: WARC 1.1 files with what was sent and received, and JSON lines with what was found.

How a group of pages becomes durable, in the order in which data flows:

1. `sink` passes the group to additional sinks, if there are any, and then to the archive.
2. `archive` makes the records of the pages: in the event loop, in slices, or in its one thread if they are expensive. All
   that waits for the disk happens in the thread.
3. The text of a page is extracted if the settings ask for it (`crawler.parse.text`), unless it came with the page.
   `near_duplicates` checks whether an earlier page had nearly the same text. If so, the page's records may be left out.
4. `warc` turns each HTTP exchange into a request and a response record, or a revisit record if the same body is in
   the archive already, and what was found in the page into a metadata record. Each record is compressed separately
   (`compression`). The place of the response goes into the index (`cdxj`).
5. `lines` turns each settled URL into a JSON line, which contains that place.
6. `journal` stores the leases of the group. Then the records and lines are appended to the two files of the current
   `volume` (`files`). If that fails, the files are cut back to their earlier size, and the group can be written again.
   Pages that turn out not to be settled are removed again.
7. When the files are finished, the sorted index is written. In a thread of its own, `upload` converts the lines with
   `parquet` and copies the files.
8. At the next start, or with `crawler finish`, `recovery` finishes the files of crashed writers, and removes pages that
   were not settled.

A volume is a WARC file and its JSON lines, `<crawl>-<replica>-<timestamp>-<serial>.warc.gz` (or `.warc.zst`) and
`.pages.jsonl`, and at the end `.cdxj`. While files are being written, their names end in `.open`, and they are locked.

Commands read the files of a crawl. `export` converts WARC files to rows, which `reader` finds, and `wacz` packs them into
one file. For Markdown (`markdown_files`), and to leave out what owners refuse, `last_visits` says what the last visit of
each page has found. `items` writes a data set or what visits of known pages have found, and `postgres` writes a data set to
a table of a database. `forget` rewrites the files without a domain whose owner objected.

Additional sinks import `Sink` and `SinkContext` from `crawler`. Importing `crawler.sinks` does not load the archive.
"""

from crawler.sinks.sink import Sink, SinkContext

__all__ = ["Sink", "SinkContext"]
