"""The table `[archive]`: what a crawl writes, and where finished files go."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from crawler.errors import UserError
from crawler.settings.table import LOADED, Count, PositiveFloat, PositiveInt, Table

UPLOAD_SCHEMES = ("s3", "gs", "az", "abfs", "file")
"""The schemes of `archive.upload`. A text without a scheme is a folder."""


def _check_destination(url: str) -> None:
    scheme, mark, rest = url.partition("://")
    before, slashes, _ = url.partition("//")
    lacks_colon = slashes and before in UPLOAD_SCHEMES
    if lacks_colon or (mark and (scheme not in UPLOAD_SCHEMES or not rest)):
        raise UserError("write it as s3://BUCKET/PREFIX, gs://, az:// or the path of a folder")


class ArchiveTable(Table, frozen=True, kw_only=True):
    """The files that a crawl writes."""

    restart: ClassVar[str] = "open files were started with the old value"

    warc: Annotated[bool, "Write WARC 1.1 files."] = True
    pages: Annotated[bool, "Write a JSON line for each URL that is settled."] = True
    noarchive: Annotated[
        bool, "Respect `noarchive` in meta robots and X-Robots-Tag: write only the JSON line of such a page."
    ] = True
    compression: Annotated[
        Literal["gzip", "zstd"],
        "Compression of the WARC files. `zstd` is slightly smaller; FastWARC reads it, pywb and warcio do not.",
    ] = "gzip"
    links: Annotated[bool, "Include the links of each page in its JSON line."] = True
    metadata: Annotated[bool, "Write a WARC metadata record, with the links, for each page."] = True
    via: Annotated[
        bool,
        "Include in each JSON line and metadata record the page on which the URL was first found. Stores "
        "that page's URL in Redis with each queued URL.",
    ] = False
    index: Annotated[bool, "Write a CDXJ index for each WARC file, which pywb needs for replay."] = True
    text: Annotated[
        Literal["off", "text", "markdown"],
        "Include the main text of each page, or its main content as Markdown, in its JSON line. Uses more CPU.",
    ] = "off"
    structured: Annotated[
        bool, "Include the JSON-LD and OpenGraph data of each page in its JSON line. Uses more CPU."
    ] = False
    simhash: Annotated[
        bool, "Include a 64-bit fingerprint of the main text of each page, for finding near duplicates. Uses more CPU."
    ] = False
    near_duplicates: Annotated[
        Literal["off", "mark", "drop"],
        "How to treat pages whose main text is nearly the same as that of an earlier page of the replica. "
        "`mark`: name that page in the JSON line; `drop`: also omit the WARC records and the text. Uses more CPU.",
    ] = "off"
    soft_404: Annotated[
        Literal["off", "mark", "drop"],
        "How to treat error pages that are sent with status 200 instead of 404. `mark`: mark the JSON "
        "line; `drop`: also omit the WARC records and the text. Uses more CPU.",
    ] = "off"
    near_remembered: Annotated[
        Count,
        "Number of pages that a replica remembers for `near_duplicates`. Each takes about 200 bytes of "
        "memory. Higher: copies are found across more pages.",
    ] = 131_072
    parquet: Annotated[bool, "Convert each finished file of JSON lines to a Parquet file. Requires pyarrow."] = False
    upload: Annotated[
        str,
        Meta(extra={"check": _check_destination}),
        "Destination to which finished files are copied: `s3://bucket/prefix`, `gs://`, `az://` or a "
        "folder. Requires obstore.",
    ] = ""
    keep_local: Annotated[
        bool, "Keep local files after upload. If false, delete each file once its copy has been verified."
    ] = True
    on_page: Annotated[
        tuple[str, ...],
        Meta(extra={"restart": LOADED}),
        "Page hooks: `package.module:function`, or the name of an installed hook. See docs/how-to/extend.md.",
    ] = ()
    sinks: Annotated[
        tuple[str, ...],
        Meta(extra={"restart": LOADED}),
        "Additional sinks: `package.module:factory`, or the name of an installed sink. See docs/how-to/extend.md.",
    ] = ()
    max_bytes: Annotated[PositiveInt, "Size of a WARC file, in bytes, at which the next file is started."] = (
        1_073_741_824
    )
    max_age: Annotated[
        PositiveFloat, "Maximum time, in seconds, for which an output file stays open before the next one is started."
    ] = 3_600.0
    fsync: Annotated[
        bool, "Flush files to disk before a URL is settled. Slower; without it, a power failure can lose pages."
    ] = False
    revisits: Annotated[
        Count,
        "Number of response bodies that are remembered, so that a later identical body is written as a "
        "revisit record. 0: write no revisit records.",
    ] = 16_384
