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
from crawler.parse.document import ParsedDocument, ReadJob
from crawler.parse.subprocess_main import FRAME, Head, Job, OffloadPart, OffloadReply, frame
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


class OffloadJobFailed(Exception):
    """Raised when the process has answered with an error: a defect."""


class ProcessNotStarted(Exception):
    """Raised when no process can be started, or when it ends before it reads anything: this machine's fault."""


class OffloadProcess:
    """A process that reads documents one at a time. It runs from the first one until `stop`."""

    def __init__(self, reply_timeout_s: float = REPLY_TIMEOUT_S, documents: int = DOCUMENTS) -> None:
        self._start_timeout_s, self._reply_timeout_s = REPLY_TIMEOUT_S, reply_timeout_s
        self._documents = documents
        self._process: asyncio.subprocess.Process | None = None
        self._left = 0
        self.cpu_s = 0.0
        """CPU seconds of the last job that was answered."""

    def __repr__(self) -> str:
        return f"<OffloadProcess pid={self.pid} left={self._left}>"

    @property
    def pid(self) -> int | None:
        """The ID of the process, or None."""
        return self._process.pid if self._process else None

    async def read(self, job: ReadJob, body: bytes) -> ParsedDocument | None:
        """The contents of the document with this `body`; None if there was not enough memory. Raises OffloadProcessEnded,
        ProcessNotStarted and OffloadJobFailed."""
        return await self._with_process(lambda process: self._read(process, job, body))

    async def run(self, job: Job, body: bytes, kind: type[T]) -> T | None:
        """The result of another `job`. Returns and raises as `read`."""
        return await self._with_process(lambda process: self._run(process, job, body, kind))

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
        except OffloadJobFailed:
            raise
        except BaseException:  # cancelled: nobody reads the answer
            await self.stop()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = python_command("crawler.parse.subprocess_main")
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=_BUFFER, env=environment()
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread that waits for its end
            raise ProcessNotStarted(str(error)) from error
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await _content(process.stdout)
        except TimeoutError as error:
            await self.stop()
            raise ProcessNotStarted("it did not begin in time") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ProcessNotStarted(f"it ended with {await self._code_of(process)}") from error
        except BaseException:
            await self.stop()
            raise
        self._left = self._documents
        return process

    async def stop(self) -> None:
        """End the process at once."""
        process, self._process, self._left = self._process, None, 0
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _read(self, process: asyncio.subprocess.Process, job: ReadJob, body: bytes) -> ParsedDocument | None:
        answers, parts = await self._asked(process, job, body)
        if not parts:
            return None
        reply = msgspec.msgpack.decode(await _content(answers), type=OffloadReply)
        links: list[Link] = []
        urls: list[Url] = []
        hints: dict[str, float] = {}
        for _ in range(parts - 1):
            part = msgspec.msgpack.decode(await _content(answers), type=OffloadPart)
            links += part.links
            urls += part.urls
            hints |= part.hints
            await asyncio.sleep(0)  # the next part may already be here
        found = msgspec.structs.replace(reply.found, links=tuple(links), urls=tuple(urls))
        return ParsedDocument(found, hints, reply.decoded_size, reply.cut)

    async def _run(self, process: asyncio.subprocess.Process, job: Job, body: bytes, kind: type[T]) -> T | None:
        answers, parts = await self._asked(process, job, body)
        return msgspec.msgpack.decode(await _content(answers), type=kind) if parts else None

    async def _asked(
        self, process: asyncio.subprocess.Process, job: Job, body: bytes
    ) -> tuple[asyncio.StreamReader, int]:
        """Send a job. Returns where the parts of its answer arrive, and their number."""
        answers = await _sent(process, job, body)
        head = msgspec.msgpack.decode(await _content(answers), type=Head)
        self.cpu_s = head.cpu_s
        if head.error:
            raise OffloadJobFailed(head.error)
        return answers, head.parts

    async def _code_of(self, process: asyncio.subprocess.Process) -> int:
        """The exit code of a `process` that no longer answers. Wait before sending a signal, which would reap the process
        and take the code from the event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reply_timeout_s):
                await process.wait()
        await self.stop()
        return process.returncode or 0


async def _sent(process: asyncio.subprocess.Process, job: Job, body: bytes) -> asyncio.StreamReader:
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


async def _content(answers: asyncio.StreamReader) -> bytes:
    return await answers.readexactly(int.from_bytes(await answers.readexactly(FRAME)))
