"""The items of pages: their extraction by the rules of the settings (`crawler.parse.extraction`), in the event loop or
in the process for large documents, and the check of all items, also those of handlers, against the types of the fields
of their data sets, on which all replicas agree.

Redis keeps the type of each field (`frontier.crawls`). What this replica knows of them is here, so only a page with a
field that is new, or whose type becomes wider, needs a call. An item that does not fit a declared type is rejected: it
is written in the line of its page with the reason, and not among the items.

Types may be forgotten on an operator's command. So while there are items, they are read again once in `REREAD_S`. A
node of a cluster that has the types and is away holds up no page: the types that this replica finds count until it is
back.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.events import Events, ItemsRejected, RedisOutageEnded
from crawler.page import Item, Page, RejectedItem
from crawler.parse.child import SMALL, DocumentOffloader
from crawler.parse.document import INLINE_INPUT
from crawler.parse.extraction import Extraction, ExtractionJob
from crawler.parse.tags import INLINE_TREE, TakesLong
from crawler.scope.extract_rules import ExtractRule, Kinds, Misfit, Schema, shown
from crawler.worker.runtime import Runtime, TimeSlice
from frontier.crawls import LONGEST_FIELD, MOST_FIELDS, FieldTypes
from frontier.errors import RedisAway

REREAD_S = 10.0
"""How long a replica may still use types that an operator has forgotten, in seconds."""

SHOWN = 100
"""Characters of a text that does not fit that are reported."""


async def extract_items(
    page: Page, rules: Sequence[ExtractRule], max_decoded: int, offload: DocumentOffloader, events: Events
) -> Page:
    """Return `page`, which has an exchange, with the items that `rules` find. Those that are rejected are reported.
    `max_decoded`: the most bytes of a decoded body."""
    rules = tuple(rule for rule in rules if rule.applies(page))
    if not rules:
        return page
    job, shown = ExtractionJob.of(page, rules, max_decoded), page.shown
    assert shown is not None
    extraction: Extraction | None = None
    if page.decoded_size <= INLINE_TREE and len(shown.body) <= INLINE_INPUT and "unread" not in page.cut:
        with contextlib.suppress(TakesLong):
            extraction = job.run(shown.body, is_inline=True)
    if extraction is None:
        extraction = await offload.extract(job, shown, page.decoded_size > SMALL or "unread" in page.cut)
    if extraction.rejected_count:
        events.emit(ItemsRejected(page.url, extraction.rejected_count, str(extraction.rejected[0])))
    return msgspec.structs.replace(
        page, items=extraction.items, rejected=extraction.rejected, rejected_by=extraction.rejected_by
    )


class ItemTypes:
    """The types of the fields of data sets, as this replica knows them. `save`: writes them down beside the output when
    they have changed; it is called in a thread."""

    def __init__(self, runtime: Runtime, types: FieldTypes, save: Callable[[Mapping[str, Kinds]], None]) -> None:
        self._runtime = runtime
        self._types = types
        self._save = save
        self._schemas: dict[str, Schema] = {}
        self._saved: dict[str, Kinds] = {}
        self._declared: Mapping[str, Kinds] = {}
        self._read_at = -math.inf
        self._has_kept = True  # Redis has all types that are known here
        # It may have lost its last writes.
        runtime.events.subscribe(lambda _: self._mark_stale(), RedisOutageEnded)

    def __repr__(self) -> str:
        return f"<ItemTypes data_sets={len(self._schemas)} fields={self._size}>"

    @property
    def _size(self) -> int:
        return sum(len(schema.kinds) for schema in self._schemas.values())

    def _mark_stale(self) -> None:
        self._has_kept = False

    def apply(self, declared: Mapping[str, Kinds]) -> None:
        """Let the fields of data sets have the types that the settings declare."""
        self._declared = declared
        self._schemas = {}
        self._read_at = -math.inf

    async def checked(self, page: Page) -> Page:
        """Return `page` without the items that do not fit. They are reported, and the types of the others are kept."""
        if not page.items:
            return page
        if is_to_read := self._runtime.now() >= self._read_at + REREAD_S:
            await self._read()
        offered = {} if self._has_kept else self._kinds()
        kept, rejected, time_slice = list[Item](), list[RejectedItem](), TimeSlice(self._runtime.clock)
        for item in page.items:
            schema = self._schemas.get(item.name) or self._schema(item.name)
            found = self._found_in(schema, item.fields)
            if isinstance(found, Misfit):
                rejected.append(_rejected(item, found))
            else:
                kept.append(item)
                if found:
                    schema.learn(found)
                    self._schemas[item.name] = schema
                    offered |= {(item.name, field): kind for field, kind in found.items()}
            await time_slice.end_if_over()
        if offered:
            self._adopt(await self._kept(offered))
        if (offered or is_to_read) and (known := self._known()) != self._saved:
            self._saved = known
            await asyncio.to_thread(self._save, known)
        if not rejected:
            return page
        self._runtime.events.emit(ItemsRejected(page.url, len(rejected), str(rejected[0])))
        return with_items(page, kept, rejected)

    def _found_in(self, schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any] | Misfit:
        """Return what can be learnt of `schema` from an item. Null has no type, and the number of fields is limited."""
        found = schema.found_in(fields)
        if isinstance(found, Misfit) or not found:
            return found
        is_full = self._size >= MOST_FIELDS
        return {
            field: kind
            for field, kind in found.items()
            if kind is not None and len(field) <= LONGEST_FIELD and not (is_full and field not in schema.kinds)
        }

    async def _read(self) -> None:
        """Read the types that Redis has. Those that only this replica knows remain if Redis could not keep them."""
        self._read_at = self._runtime.now()
        retry = self._runtime.retry
        try:
            kinds = await retry.crawl_node_soon(self._types.read)
        except RedisAway:
            return
        local = {} if self._has_kept else self._kinds()
        self._schemas = {name: self._schema(name) for name in self._declared}
        self._adopt({**local, **kinds})

    async def _kept(self, offered: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], str]:
        """Have the types that are `offered` kept. Returns those that count from now on."""
        retry = self._runtime.retry
        try:
            kept = await retry.crawl_node_soon(lambda: self._types.keep(offered))
        except RedisAway:
            self._has_kept = False
            return {}
        self._has_kept = True
        return kept

    def _schema(self, name: str) -> Schema:
        return Schema(declared=self._declared.get(name))

    def _adopt(self, kinds: Mapping[tuple[str, str], Any]) -> None:
        for (name, field), kind in kinds.items():
            schema = self._schemas.setdefault(name, self._schema(name))
            declared = self._declared.get(name, {}).get(field)
            if declared or field in schema.kinds or self._size < MOST_FIELDS:
                schema.learn({field: declared or kind})

    def _kinds(self) -> dict[tuple[str, str], Any]:
        return {(name, field): kind for name, schema in self._schemas.items() for field, kind in schema.known.items()}

    def _known(self) -> dict[str, Kinds]:
        """What is written down: also the declared fields of which no value was found, so that exports have them."""
        return {name: {**self._declared.get(name, {}), **schema.known} for name, schema in self._schemas.items()}


def with_items(page: Page, items: Sequence[Item], rejected: Sequence[RejectedItem]) -> Page:
    """Return `page` with `items` in place of its own, and with more `rejected` ones."""
    counted = dict(Counter(page.rejected_by) + Counter(one.word for one in rejected)) if rejected else page.rejected_by
    return msgspec.structs.replace(page, items=tuple(items), rejected=(*page.rejected, *rejected), rejected_by=counted)


def _rejected(item: Item, misfit: Misfit) -> RejectedItem:
    is_too_large = misfit.found is None
    what = "a number that is too large" if is_too_large else f"{misfit.found} instead of {misfit.known}"
    value = misfit.value[:SHOWN] if isinstance(misfit.value, str) else shown(misfit.value)
    return RejectedItem(item.name, misfit.field, "size" if is_too_large else "changed", value, what, item.json)
