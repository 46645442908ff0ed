"""Starts and ends the process that reads large documents, and exchanges messages with it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from crawler.child_processes import environment, python_command
from crawler.page import Link
from crawler.parse.document import Document, ParsedDocument, ParseLimits
from crawler.parse.extraction import Extraction, ExtractionJob
from crawler.parse.subprocess_main import FRAME, OffloadPart, OffloadReply, frame
from crawler.parse.text_fingerprint import TextJob
from frontier.urls import Url

REPLY_TIMEOUT_S = 60.0
"""Seconds for a document. Its CPU time is also limited, but on a busy machine the process may get little of that."""

DOCUMENTS = 500
"""Documents that one process reads, because its parsers may leak memory. A start takes 0.2 s of a core."""

_BUFFER = 1 << 20  # bytes of an answer that are held in memory before the process must wait
_SLICE = 1 << 18  # bytes of a body written to the pipe at a time, because writing copies them

T = TypeVar("T")


class OffloadProcessEnded(Exception):
    """Raised when the process ended instead of answering. `code`: as `asyncio.subprocess.Process.returncode`; 0 after a
    timeout."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with {code}" if code else "took too long")
        self.code = code


class OffloadProcess:
    """A process that reads documents one at a time. It runs from the first one until `stop`."""

    def __init__(self, reply_timeout_s: float = REPLY_TIMEOUT_S, documents: int = DOCUMENTS) -> None:
        self._reply_timeout_s = reply_timeout_s
        self._documents = documents
        self._process: asyncio.subprocess.Process | None = None
        self._left = 0

    def __repr__(self) -> str:
        return f"<OffloadProcess pid={self.pid} left={self._left}>"

    @property
    def pid(self) -> int | None:
        """The ID of the process, or None."""
        return self._process.pid if self._process else None

    async def read(self, document: Document, limits: ParseLimits) -> ParsedDocument | None:
        """The contents of `document`; None if there was not enough memory. Raises OffloadProcessEnded, and OSError if no
        process can be started."""
        return await self._with_process(lambda process: _ask(process, document, limits))

    async def extract(self, job: ExtractionJob, body: bytes) -> Extraction | None:
        """What `job` extracts from `body`. Returns and raises as `read`."""
        return await self._with_process(lambda process: _ask_for(process, job, body, Extraction))

    async def text_digest(self, job: TextJob, body: bytes) -> str | None:
        """The fingerprint of the main text of `body`. Returns and raises as `read`."""
        return await self._with_process(lambda process: _ask_for(process, job, body, str))

    async def _with_process(self, ask: Callable[[asyncio.subprocess.Process], Awaitable[T]]) -> T:
        if not self._left:
            await self.stop()
        process = self._process or await self._start()
        self._left -= 1
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                return await ask(process)
        except TimeoutError as error:
            await self.stop()
            raise OffloadProcessEnded(0) from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            raise OffloadProcessEnded(await self._code_of(process)) from error
        except BaseException:  # cancelled: nobody reads the answer
            await self.stop()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = python_command("crawler.parse.subprocess_main")
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
        """The exit code of a `process` that no longer answers. Wait before sending a signal, which would reap the process
        and take the code from the event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reply_timeout_s):
                await process.wait()
        await self.stop()
        return process.returncode or 0


async def _sent(process: asyncio.subprocess.Process, job: object, body: bytes) -> asyncio.StreamReader:
    """Send a job. Returns where its answer arrives."""
    jobs, answers = process.stdin, process.stdout
    assert jobs is not None and answers is not None
    jobs.write(frame(pickle.dumps(job, pickle.HIGHEST_PROTOCOL)))
    view = memoryview(body)
    jobs.write(len(view).to_bytes(FRAME))
    for at in range(0, len(view), _SLICE):
        jobs.write(view[at : at + _SLICE])
        await jobs.drain()
    return answers


async def _ask_for(process: asyncio.subprocess.Process, job: object, body: bytes, kind: type[T]) -> T | None:
    answers = await _sent(process, job, body)
    return msgspec.msgpack.decode(await _content(answers), type=kind | None)


async def _ask(process: asyncio.subprocess.Process, document: Document, limits: ParseLimits) -> ParsedDocument | None:
    answers = await _sent(process, (document._replace(body=b""), limits), document.body)
    reply = msgspec.msgpack.decode(await _content(answers), type=OffloadReply)
    if reply.found is None:
        return None
    links: list[Link] = []
    urls: list[Url] = []
    hints: dict[str, float] = {}
    for _ in range(reply.parts):
        part = msgspec.msgpack.decode(await _content(answers), type=OffloadPart)
        links += part.links
        urls += part.urls
        hints |= part.hints
        await asyncio.sleep(0)  # the next part may already be here
    found = msgspec.structs.replace(reply.found, links=tuple(links), urls=tuple(urls))
    return ParsedDocument(found, hints, reply.decoded_size, reply.cut)


async def _content(answers: asyncio.StreamReader) -> bytes:
    return await answers.readexactly(int.from_bytes(await answers.readexactly(FRAME)))
