"""Turns a resource into the steps of its response: header fields, content and transfer coding, and faults."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from email.utils import formatdate

from crawler.simweb import pages
from crawler.simweb.attacks import attack
from crawler.simweb.changing import Validity
from crawler.simweb.codings import encode, token
from crawler.simweb.features import Coding
from crawler.simweb.resource import Fault, Resource, Trouble
from crawler.simweb.wire import ScriptedResponse, chunked, head, whole


def answer(resource: Resource | None, attempt: int, request: Mapping[str, str], now: float) -> ScriptedResponse:
    """The response to request number `attempt` for `resource`, 1 for the first.

    `request`: its header fields, by name in lower case; `now`: seconds since 1970. The response is a 404 if `resource` is
    None.
    """
    if resource is None:
        return ScriptedResponse(404, (whole(404, ["Content-Type: text/html"], b"<h1>Not found</h1>"),))
    if resource.hazard is not None:
        return attack(resource.hazard, resource.body or b"")
    if resource.trouble is not None and resource.trouble.strikes(attempt):
        return _troubled(resource.trouble, now)
    if resource.fault is not None:
        return _FAULTY[resource.fault](resource)
    return _sound(resource, request, now)


def _sound(resource: Resource, request: Mapping[str, str], now: float) -> ScriptedResponse:
    body = resource.body if resource.body is not None else pages.html(resource)
    fields = _fields(resource)
    changing = resource.changing
    if changing is not None:
        fields += [f"{name}: {value}" for name, value in changing.fields(now).items()]
        if changing.is_not_modified(now, request):
            return _not_modified(fields, body if changing.validity is Validity.WORDY else b"")
        body = body.replace(b"</body>", f"<p>{changing.text(now)}</p></body>".encode())
    if resource.dates:
        body = _dated(resource, body, now)
    if resource.coding is not Coding.IDENTITY and token(resource.coding) in request.get("accept-encoding", ""):
        body = encode(resource.coding, body)
        fields.append(f"Content-Encoding: {token(resource.coding)}")
    frame = chunked if resource.chunked else whole
    data = frame(resource.status, fields, body)
    return ScriptedResponse(resource.status, (resource.delay, data) if resource.delay else (data,))


def _not_modified(fields: list[str], body: bytes) -> ScriptedResponse:
    """A 304 has no body (RFC 9110 section 15.4.5), but some servers send one."""
    length = [f"Content-Length: {len(body)}"] if body else []
    return ScriptedResponse(304, (head(304, [*fields, *length]) + body,))


def _dated(resource: Resource, body: bytes, now: float) -> bytes:
    """The sitemap `body` with the time of the last change of each page."""
    is_zipped = resource.media == "application/gzip"
    text = gzip.decompress(body) if is_zipped else body
    first, *rest = text.split(b"</loc>")
    for page, part in zip(resource.dates, rest, strict=True):
        first += f"</loc><lastmod>{page.lastmod(now)}</lastmod>".encode() + part
    return gzip.compress(first, 1, mtime=0) if is_zipped else first


def _fields(resource: Resource) -> list[str]:
    media = resource.media
    if resource.charset.value.endswith("/header") and media == "text/html":
        media = f"{media}; charset={resource.charset.encoding}"
    fields = [f"Content-Type: {media}"]
    if resource.location:
        fields.append(f"Location: {resource.location}")
    if resource.x_robots:
        fields.append(f"X-Robots-Tag: {resource.x_robots}")
    return fields


def _troubled(trouble: Trouble, now: float) -> ScriptedResponse:
    """An HTTP-date has whole seconds, so it asks for up to one second more than the other form."""
    fields = ["Content-Type: text/html"]
    retry_after: float | None = None
    if trouble.retry_after_s:
        date = int(now) + 1 + trouble.retry_after_s
        retry_after = date - now if trouble.as_date else float(trouble.retry_after_s)
        written = formatdate(date, usegmt=True) if trouble.as_date else str(trouble.retry_after_s)
        fields.append(f"Retry-After: {written}")
    return ScriptedResponse(trouble.status, (whole(trouble.status, fields, b"<h1>Not now</h1>"),), retry_after)


def _cut(resource: Resource) -> ScriptedResponse:
    """Content-Length is twice the number of bytes that are sent."""
    body = pages.html(resource)
    promise = head(200, [*_fields(resource), f"Content-Length: {len(body)}"])
    return ScriptedResponse(200, (promise + body[: len(body) // 2],), closes=True)


def _bad_chunks(resource: Resource) -> ScriptedResponse:
    data = chunked(200, _fields(resource), pages.html(resource))
    return ScriptedResponse(200, (data.removesuffix(b"0\r\n\r\n") + b"zz\r\nno chunk size\r\n",), closes=True)


def _garbage(resource: Resource) -> ScriptedResponse:
    return ScriptedResponse(0, (b"\x16\x03\x01 this is no HTTP\r\n\r\n",), closes=True)


def _hang_up(resource: Resource) -> ScriptedResponse:
    return ScriptedResponse(0, (), closes=True)


def _silent(resource: Resource) -> ScriptedResponse:
    return ScriptedResponse(0, (), hangs=True)


_FAULTY: dict[Fault, Callable[[Resource], ScriptedResponse]] = {
    Fault.CUT: _cut,
    Fault.BAD_CHUNKS: _bad_chunks,
    Fault.GARBAGE: _garbage,
    Fault.HANG_UP: _hang_up,
    Fault.SILENT: _silent,
}
