"""The crawler's end of the process that reads documents that take long: starts it, asks it, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys

import msgspec

from crawler.page import Link
from crawler.parse.confinement import environment
from crawler.parse.document import Document, ParsedDocument, ParseLimits
from crawler.parse.subprocess_main import FRAME, OffloadReply, Ref, frame
from frontier.urls import Url

REPLY_TIMEOUT_S = 60.0
"""Seconds a document, besides its limit on CPU time: a machine may be so busy that the process gets little of it."""

DOCUMENTS = 500
"""Documents a process, for what its parsers may have kept. A start takes 0.2 s of a core."""

_BUFFER = 1 << 20  # bytes of an answer that wait in memory before the process must
_SLICE = 1 << 18  # bytes of a body handed to the pipe at a time: it copies them, 10 MB in 10 ms

_answer = msgspec.msgpack.Decoder(OffloadReply)
_part = msgspec.msgpack.Decoder(list[Ref])


class OffloadProcessEnded(Exception):
    """Raised when the process ended instead of answering. `code`: as `asyncio.subprocess.Process.returncode`; 0 if we lost
    patience."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with {code}" if code else "took too long")
        self.code = code


class OffloadProcess:
    """A process that reads documents one after the other. It runs from the first one until `stop`."""

    def __init__(self, reply_timeout_s: float = REPLY_TIMEOUT_S, documents: int = DOCUMENTS) -> None:
        self._reply_timeout_s = reply_timeout_s
        self._documents = documents
        self._process: asyncio.subprocess.Process | None = None
        self._left = 0

    def __repr__(self) -> str:
        return f"<OffloadProcess pid={self.pid} left={self._left}>"

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process else None

    async def read(self, document: Document, limits: ParseLimits) -> ParsedDocument | None:
        """What `document` says, or None if there was not memory enough. Raises OffloadProcessEnded, and OSError if no
        process can be started."""
        if not self._left:
            await self.stop()
        process = self._process or await self._start()
        self._left -= 1
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                return await _ask(process, document, limits)
        except TimeoutError as error:
            await self.stop()
            raise OffloadProcessEnded(0) from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            raise OffloadProcessEnded(await self._code_of(process)) from error
        except BaseException:  # cut off: what it is about to answer belongs to nobody
            await self.stop()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "crawler.parse.subprocess_main")
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_BUFFER, env=environment()
        )
        self._left = self._documents
        return self._process

    async def stop(self) -> None:
        """End the process at once."""
        process, self._process, self._left = self._process, None, 0
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _code_of(self, process: asyncio.subprocess.Process) -> int:
        """The exit code of a `process` that no longer answers. It is waited for before anything is sent to it: a signal
        would look after the process itself, and take the code from the event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reply_timeout_s):
                await process.wait()
        await self.stop()
        return process.returncode or 0


async def _ask(process: asyncio.subprocess.Process, document: Document, limits: ParseLimits) -> ParsedDocument | None:
    jobs, answers = process.stdin, process.stdout
    assert jobs is not None and answers is not None
    jobs.write(frame(pickle.dumps((document._replace(body=b""), limits), pickle.HIGHEST_PROTOCOL)))
    body = memoryview(document.body)
    jobs.write(len(body).to_bytes(FRAME))
    for at in range(0, len(body), _SLICE):
        jobs.write(body[at : at + _SLICE])
        await jobs.drain()
    told = _answer.decode(await _content(answers))
    if told.found is None:
        return None
    links: list[Link] = []
    urls: list[Url] = []
    hints: dict[str, float] = {}
    for _ in range(told.parts):
        for ref in _part.decode(await _content(answers)):
            links.append(Link(ref.href, ref.kind))
            urls.append(Url(ref.href, ref.domain, ref.origin))
            if ref.hint is not None:
                hints[ref.href] = ref.hint
        await asyncio.sleep(0)  # the next part may be here already, and then nothing else would get its turn
    found = msgspec.structs.replace(told.found, links=tuple(links), urls=tuple(urls))
    return ParsedDocument(found, hints, told.decoded_size, told.cut)


async def _content(answers: asyncio.StreamReader) -> bytes:
    return await answers.readexactly(int.from_bytes(await answers.readexactly(FRAME)))
