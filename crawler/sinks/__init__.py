"""The output of a crawl: WARC 1.1 files with what was sent and received, and JSON lines with what was found.

How a group of pages becomes durable, in the order in which data flows:

1. `tee` passes the group to additional sinks, if there are any, and then to the archive.
2. `archive` makes the records of the pages: in the event loop, in slices, or in its one thread if they are expensive. All
   that waits for the disk happens in the thread.
3. The text of a page is extracted if the settings ask for it (`crawler.parse.text`), unless it came with the page.
   `near_duplicates` checks whether an earlier page had nearly the same text. If so, the page's records may be left out.
4. `warc` turns each HTTP exchange into a request and a response record, or a revisit record if the same body is in
   the archive already, and what was found in the page into a metadata record. Each record is compressed separately
   (`compression`). The place of the response goes into the index (`cdxj_index`).
5. `page_lines` turns each settled URL into a JSON line, which contains that place.
6. `journal` stores the leases of the group. Then the records and lines are appended to the two files of the current
   `volume` (`segment`). If that fails, the files are cut back to their earlier size, and the group can be written again.
   Pages that turn out not to be settled are removed again.
7. When the files are finished, the index is written. In a thread of
   its own, `postprocess` converts the lines with `parquet` and copies the files with `upload`.
8. At the next start, or with `crawler finish`, `recovery` finishes the files of crashed writers, and removes pages that
   were not settled.

A volume is a WARC file and its JSON lines, `<crawl>-<replica>-<timestamp>-<serial>.warc.gz` (or `.warc.zst`) and
`.pages.jsonl`, and at the end `.cdxj`. While files are being written, their names end in `.open`, and they are locked.

`forget` rewrites the files of each `finished_volume` without a domain whose owner objected, with `noted_urls`,
`rewritten_record` and `replaced_files`.

`sink` defines what a sink is, `archive_settings` has the settings of the archive, `time_formats` writes times, and
`output_folder` checks the folder of the archive before a crawl begins.

Commands read the files of a crawl. `export` converts WARC files to rows (`warc_rows`) in several processes
(`process_pool`), and `export_record` remembers how. `wacz` packs WARC files into one file. `items` writes a data set, and
`changes` what visits of known pages have found. `line_search` finds the line of a URL, `crawl_files` the files of one of
several crawls in a folder, and `last_visits` when pages are visited again. WARC files are read with `warc_reader`, and
files that are still open with `open_files`. `types_file` keeps the types of the fields of items. `item_tail` reads items
while a crawl runs, and `item_writer` writes them to a table of a database (`postgres`).

Additional sinks import `Sink` and `SinkContext` from `crawler`. Importing `crawler.sinks` does not load the archive.
Other rooms import: `archive`, `archive_settings`, `cdxj_index`, `changes`, `compression`, `content`, `crawl_files`,
`export`, `forget`, `item_writer`, `items`, `last_visits`, `line_search`, `open_files`, `output_folder`, `parquet`,
`postgres`, `postprocess`, `recovery`, `replaced_files`, `segment`, `sink`, `tee`, `time_formats`, `types_file`, `upload`,
`wacz`, `warc_reader`, `warc_rows`.
"""

from crawler.sinks.sink import Sink, SinkContext

__all__ = ["Sink", "SinkContext"]
