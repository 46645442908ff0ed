"""The table `[archive]`: what a crawl writes, and where finished files go."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from crawler.settings.table import LOADED, Count, Table, needs_restart

UPLOAD_SCHEMES = ("s3", "gs", "az", "abfs", "file")
"""The schemes of `archive.upload`. A text without a scheme is a folder."""


class ArchiveTable(Table):
    """The files that a crawl writes."""

    restart: ClassVar[str] = "open files were started with the old value"

    warc: bool = Field(True, description="Write WARC 1.1 files.")
    pages: bool = Field(True, description="Write a JSON line for each URL that is settled.")
    noarchive: bool = Field(
        True,
        description="Respect `noarchive` in meta robots and X-Robots-Tag: write only the JSON line of such a page.",
    )
    compression: Literal["gzip", "zstd"] = Field(
        "gzip",
        description="Compression of the WARC files. `zstd` is slightly smaller; FastWARC reads it, pywb and warcio "
        "do not.",
    )
    links: bool = Field(True, description="Include the links of each page in its JSON line.")
    metadata: bool = Field(True, description="Write a WARC metadata record, with the links, for each page.")
    via: bool = Field(
        False,
        description="Include in each JSON line and metadata record the page on which the URL was first found. Stores "
        "that page's URL in Redis with each queued URL.",
    )
    index: bool = Field(True, description="Write a CDXJ index for each WARC file, which pywb needs for replay.")
    text: Literal["off", "text", "markdown"] = Field(
        "off",
        description="Include the main text of each page, or its main content as Markdown, in its JSON line. Uses "
        "more CPU.",
    )
    structured: bool = Field(
        False, description="Include the JSON-LD and OpenGraph data of each page in its JSON line. Uses more CPU."
    )
    simhash: bool = Field(
        False,
        description="Include a 64-bit fingerprint of the main text of each page, for finding near duplicates. Uses "
        "more CPU.",
    )
    near_duplicates: Literal["off", "mark", "drop"] = Field(
        "off",
        description="How to treat pages whose main text is nearly the same as that of an earlier page of the replica. "
        "`mark`: name that page in the JSON line; `drop`: also omit the WARC records and the text. Uses more CPU.",
    )
    soft_404: Literal["off", "mark", "drop"] = Field(
        "off",
        description="How to treat error pages that are sent with status 200 instead of 404. `mark`: mark the JSON "
        "line; `drop`: also omit the WARC records and the text. Uses more CPU.",
    )
    near_remembered: Count = Field(
        131_072,
        description="Number of pages that a replica remembers for `near_duplicates`. Each takes about 200 bytes of "
        "memory. Higher: copies are found across more pages.",
    )
    parquet: bool = Field(
        False, description="Convert each finished file of JSON lines to a Parquet file. Requires pyarrow."
    )
    upload: str = Field(
        "",
        description="Destination to which finished files are copied: `s3://bucket/prefix`, `gs://`, `az://` or a "
        "folder. Requires obstore.",
    )
    keep_local: bool = Field(
        True, description="Keep local files after upload. If false, delete each file once its copy has been verified."
    )
    on_page: tuple[str, ...] = Field(
        (),
        description="Page hooks: `package.module:function`, or the name of an installed hook. See "
        "docs/how-to/extend.md.",
        json_schema_extra=needs_restart(LOADED),
    )
    sinks: tuple[str, ...] = Field(
        (),
        description="Additional sinks: `package.module:factory`, or the name of an installed sink. See "
        "docs/how-to/extend.md.",
        json_schema_extra=needs_restart(LOADED),
    )
    max_bytes: PositiveInt = Field(
        1_073_741_824, description="Size of a WARC file, in bytes, at which the next file is started."
    )
    max_age: PositiveFloat = Field(
        3_600.0,
        description="Maximum time, in seconds, for which an output file stays open before the next one is started.",
    )
    fsync: bool = Field(
        False,
        description="Flush files to disk before a URL is settled. Slower; without it, a power failure can lose pages.",
    )
    revisits: Count = Field(
        16_384,
        description="Number of response bodies that are remembered, so that a later identical body is written as a "
        "revisit record. 0: write no revisit records.",
    )

    @field_validator("upload")
    @classmethod
    def _is_destination(cls, url: str) -> str:
        scheme, mark, rest = url.partition("://")
        if mark and (scheme not in UPLOAD_SCHEMES or not rest):
            raise ValueError("write it as s3://BUCKET/PREFIX, gs://, az:// or the path of a folder")
        return url
