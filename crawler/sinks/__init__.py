"""What a crawl outputs: WARC 1.1 for what was sent and received, JSON lines for what was found in it.

How a group of pages becomes durable, in the order in which data flows:

1. `archive` receives the group, and `group` makes its records: those of ordinary pages in the event loop, a few
   milliseconds at a time; pages of megabytes, and groups that need text extraction or hooks, in the archive's one
   thread.
2. `content` extracts the text of a page, if the settings ask for it, that of a heavy one in a process of its own
   (`content_process`). `near_duplicates` and `simhash` find out whether
   an earlier page had the same text. Its records may then be left out.
3. `warc` turns each HTTP exchange into a request and a response record, and what was found in the page into a metadata
   record. Each record is compressed on its own (`compression`). Its file, offset and length are its place, which goes
   into the `index`.
4. `pages` turns each settled URL into one JSON line that contains the place.
5. `journal` notes the leases of the group. Then the thread appends the records and the lines to the two files of the
   current `volume` (`segment`). If anything fails, both files are cut back to their earlier size, so the same group can
   be written again and no partial record remains. Pages that turn out not to be settled are removed (`journal`).
6. When the files are finished, the index is written next to them (`external_sort` keeps it sorted without much memory).
   `postprocess` makes a `parquet` file or an `upload` to an object store, in a thread of its own.
7. At the next start, `recovery` finishes the files of writers that crashed.

A volume is one WARC file and its JSON lines, `<crawl>-<replica>-<timestamp>-<serial>.warc.gz` (or `.warc.zst`) and
`.pages.jsonl`, and at the end `.cdxj`. While they are written, the files end in `.open` and are locked.

`sink` says what a sink is. `tee` passes a group to the archive and then to other sinks. `export` and `line_search` read
the files again, WARC files by `warc_reader`, as the index of a crashed writer's file and `audit` do.

Other people's sinks import `Sink` and `SinkContext` from here. Inside the project, `app` imports `archive`, `settings`,
`sink` and `tee`; the rooms that read the output (`observe`, `audit`, `cli`) import `line_search`, `export`,
`warc_reader` and the names of the files. Importing `crawler.sinks` does not load the archive.
"""

from crawler.sinks.sink import Sink, SinkContext

__all__ = ["Sink", "SinkContext"]
