"""Reads large documents in child processes, and is the program that these run.

A page of ten megabytes or a compression bomb takes a quarter of a second of a core. In a thread it would hold the
interpreter lock, which the event loop needs for every request. A process starts with its first such document, has a low
priority, and ends with its input. The kernel limits its memory and its CPU time for each document, which also ends a loop
in C. If no process can be started, documents wait, because that is the fault of this machine: a page without its links
would be taken for one that has none.

Jobs arrive on standard input, and answers go to standard output, as frames: four bytes of length, then the content. The
first answer is empty: the process has started. A job is two frames: a pickle, because it comes from the crawler, and the
document's body, which needs no copy. An answer was made by C parsers from untrusted data, so it is MessagePack, decoded
into fixed types: a `Head`, and the parts that it counts. Links come in several parts, so that the 50,000 of a sitemap do
not hold up the event loop that receives them.

Domains have turns, and a budget (`crawler.parse.turns`). One site can keep the process busy with documents that take
seconds each; in the order of arrival, some such sites would delay the pages of all others by minutes. A worker that waits
lends its slot to another one. A domain has `ORDINARY_S` CPU seconds for each piece of work, and `BURST_S` for what all take
beyond that, of which it gets back `SHARE` of each later second. Work that takes less makes up for other, so a site with
some long pages is not refused. A domain without a budget still has its links read, after all others.

`DocumentOffloader.in_steps` is for work that the event loop has to do, such as the choice of links to follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple, Protocol, cast

import msgspec

from crawler.errors import FailureKind
from crawler.events import Events, OwnFailure
from crawler.logs import log
from crawler.page import Content, Exchange, Link
from crawler.parse.document import Document, ParsedDocument, ParseLimits, ReadJob, read_if_small
from crawler.parse.extraction import Extraction, ExtractionJob, unread
from crawler.parse.html import Extracted
from crawler.parse.main_text import extractor
from crawler.parse.text import ContentJob, DigestJob
from crawler.parse.turns import FairTurns, WorkBudget
from crawler.processes import environment, python_command, renounce_privileges
from crawler.scope.scope import NO_HINTS
from frontier.domains import domain_of, host_of
from frontier.urls import Url

FRAME = 4
"""Bytes of the length of a frame."""

PART = 1_000
"""Links of a part, which take about 2 ms of the event loop."""


class Job(Protocol):
    """What to do with the body of a document, in at most `CPU_S` CPU seconds. `RESULT`: the type of the result."""

    CPU_S: ClassVar[float]
    RESULT: ClassVar[Any]

    @property
    def url(self) -> str: ...

    def run(self, body: bytes) -> Any:
        """The result. Raises MemoryError if there is not enough memory."""


class Head(NamedTuple):
    """Begins an answer. `parts`: the number of frames that follow: none if there was not enough memory, or if `error` was
    raised. `cpu_s`: CPU seconds that the job took."""

    parts: int
    cpu_s: float
    error: str = ""


class LinksPart(NamedTuple):
    """Some of the links of a document, and the hints for their scores. They follow the document without its links."""

    links: tuple[Link, ...]
    urls: tuple[Url, ...]
    hints: dict[str, float]


# The program of the process

NICENESS = 10
"""A tenth of the weight of the crawler: it gets the CPU time that the crawler leaves, and always a little."""

MAKES_TEXTS = "texts"
"""The argument of a process that is to extract the texts of pages."""

MEMORY = 1 << 30
"""Bytes of address space. The worst markup takes 150 times its size, and the process itself 200 MB."""


def main() -> None:
    renounce_privileges()
    # A terminal and a service manager signal the whole group, but the crawler decides when this process ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if MAKES_TEXTS in sys.argv:
        extractor()  # at a low priority, the import would take seconds on a busy machine
    os.nice(NICENESS)
    with contextlib.suppress(OSError, ValueError):  # not supported by every system
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing may print into the answers
    with contextlib.suppress(BrokenPipeError):  # the crawler has ended
        _serve(sys.stdin.buffer, answers)


def _serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    answers.write(_frame(b""))
    answers.flush()
    while len(size := jobs.read(FRAME)) == FRAME:
        job: Job = pickle.loads(jobs.read(int.from_bytes(size)))
        body = jobs.read(int.from_bytes(jobs.read(FRAME)))
        signal.setitimer(signal.ITIMER_PROF, job.CPU_S)  # SIGPROF ends the process
        contents = _answer(job, body)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        answers.writelines(map(_frame, contents))
        answers.flush()


def _answer(job: Job, body: bytes) -> list[bytes]:
    parts, error = [], ""
    began = time.process_time()
    try:
        parts = list(encoded(job.run(body)))
    except MemoryError:
        pass
    except Exception as raised:
        error = ascii(f"{type(raised).__name__}: {raised}"[:200])
    return [msgspec.msgpack.encode(Head(len(parts), time.process_time() - began, error)), *parts]


def encoded(result: Any) -> Iterator[bytes]:
    """The contents of the frames that carry `result`."""
    if not isinstance(result, ParsedDocument):
        yield msgspec.msgpack.encode(result)
        return
    found, hints = result.found, result.hints
    yield msgspec.msgpack.encode(
        result._replace(found=msgspec.structs.replace(found, links=(), urls=()), hints=dict[str, float]())
    )
    for at in range(0, len(found.links), PART):
        urls = found.urls[at : at + PART]
        hinted = {url.href: hints[url.href] for url in urls if url.href in hints}
        yield msgspec.msgpack.encode(LinksPart(found.links[at : at + PART], urls, hinted))


def _frame(content: bytes) -> bytes:
    return len(content).to_bytes(FRAME) + content


# The process, as the crawler sees it

REPLY_TIMEOUT_S = 60.0
"""Seconds for a document. Its CPU time is also limited, but on a busy machine the process may get little of that."""

DOCUMENTS = 500
"""Documents that one process reads, because its parsers may leak memory. A start takes 0.2 s of a core."""

_BUFFER = 1 << 20  # bytes of an answer that are held in memory before the process must wait
_SLICE = 1 << 18  # bytes of a body written to the pipe at a time, because writing copies them


class ChildEnded(Exception):
    """Raised when the process ended instead of answering. `code`: as `asyncio.subprocess.Process.returncode`; 0 after a
    timeout."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with {code}" if code else "took too long")
        self.code = code


class ChildNotStarted(Exception):
    """Raised when no process can be started, or when it ends before it reads anything: this machine's fault."""


class JobFailed(Exception):
    """Raised when the process has answered with an error: a defect."""


class ChildProcess:
    """A process that reads documents one at a time. It runs from `start` or the first one until `stop`. `makes_texts`:
    whether to extract the texts of pages is most of its work."""

    def __init__(
        self, reply_timeout_s: float = REPLY_TIMEOUT_S, documents: int = DOCUMENTS, makes_texts: bool = False
    ) -> None:
        self._words = (MAKES_TEXTS,) if makes_texts else ()
        self._reply_timeout_s = reply_timeout_s
        self._documents = documents
        self._process: asyncio.subprocess.Process | None = None
        self._left = 0
        self.cpu_s = 0.0
        """CPU seconds of the last job that was answered."""

    def __repr__(self) -> str:
        return f"<ChildProcess pid={self.pid} left={self._left}>"

    @property
    def pid(self) -> int | None:
        """The ID of the process, or None."""
        return self._process.pid if self._process else None

    async def run(self, job: Job, body: bytes) -> Any:
        """The result of `job` for the document with this `body`; None if there was not enough memory. Raises ChildEnded,
        ChildNotStarted and JobFailed."""
        process = await self.start()
        self._left -= 1
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                return await self._exchange(process, job, body)
        except TimeoutError as error:
            await self.stop()
            raise ChildEnded(0) from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            raise ChildEnded(await self._code_of(process)) from error
        except JobFailed:
            raise
        except BaseException:  # cancelled: nobody reads the answer
            await self.stop()
            raise

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process, or replace it if it has read its share of documents. Raises ChildNotStarted."""
        if not self._left:
            await self.stop()
        return self._process or await self._start()

    async def stop(self) -> None:
        """End the process at once."""
        process, self._process, self._left = self._process, None, 0
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *python_command("crawler.parse.child", *self._words),
                stdin=pipe,
                stdout=pipe,
                limit=_BUFFER,
                env=environment(),
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread that waits for its end
            raise ChildNotStarted(str(error)) from error
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await _content(process)
        except TimeoutError as error:
            await self.stop()
            raise ChildNotStarted("it did not begin in time") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChildNotStarted(f"it ended with {await self._code_of(process)}") from error
        except BaseException:
            await self.stop()
            raise
        self._left = self._documents
        return process

    async def _exchange(self, process: asyncio.subprocess.Process, job: Job, body: bytes) -> Any:
        jobs, view = process.stdin, memoryview(body)
        assert jobs is not None
        jobs.write(_frame(pickle.dumps(job, pickle.HIGHEST_PROTOCOL)) + len(view).to_bytes(FRAME))
        for at in range(0, len(view), _SLICE):
            jobs.write(view[at : at + _SLICE])
            await jobs.drain()
        head = msgspec.msgpack.decode(await _content(process), type=Head)
        self.cpu_s = head.cpu_s
        if head.error:
            raise JobFailed(head.error)
        if not head.parts:
            return None
        result = msgspec.msgpack.decode(await _content(process), type=job.RESULT)
        if head.parts == 1:
            return result
        links: list[Link] = []
        urls: list[Url] = []
        hints: dict[str, float] = {}
        for _ in range(head.parts - 1):
            part = msgspec.msgpack.decode(await _content(process), type=LinksPart)
            links += part.links
            urls += part.urls
            hints |= part.hints
            await asyncio.sleep(0)  # the next part may already be here
        found = msgspec.structs.replace(result.found, links=tuple(links), urls=tuple(urls))
        return result._replace(found=found, hints=hints)

    async def _code_of(self, process: asyncio.subprocess.Process) -> int:
        """The exit code of a `process` that no longer answers. Wait before sending a signal, which would reap the process
        and take the code from the event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reply_timeout_s):
                await process.wait()
        await self.stop()
        return process.returncode or 0


async def _content(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readexactly(int.from_bytes(await process.stdout.readexactly(FRAME)))


# What the crawler calls

MAX_WAITING_BYTES = 128 << 20
MAX_WAITING_DOCUMENTS = 1_000
"""The most that may wait while the workers lend their slots. Beyond that, they keep their slots, which slows fetching. On a
busy machine as much as that does wait, because the process has a low priority."""

LARGE = 1 << 20
MAX_ASIDE_BYTES = 1 << 30
"""Bytes from which on a body waits in a file without a name, and the most of all such files. Others count above."""

SMALL = 256 << 10
"""Bytes of a decoded body whose texts and items are light work, unless its domain is known to be slow."""

INLINE_ORDINARY_S, INLINE_HEAVY_S, INLINE_SHARE = 0.01, 0.05, 0.001
"""The budget of a domain for pages that are read in the event loop, as of `WorkBudget`: ten times what a large page of a
real site takes, and what one takes at worst. After two of these, the pages of its domain are read in the process."""

STEP_S = 0.005
MOST_S = 2.0
"""Seconds of the event loop that the steps of a page take at a time, and in all: ten times what 10,000 links take."""

RETRY_S = 5.0
"""Seconds until another process is started if none could be."""

TRIES = 2
_NOT_THE_PAGES_FAULT = (-signal.SIGKILL, 0)
"""Exit codes of a process that an operator, or the kernel for lack of memory, ended, and of one that has not answered
before it used up its CPU time, because it was stopped: worth a second try."""

UNREAD = Content(cut=("text",))
"""The content of a document that exceeded the time or memory limit."""

StandIn = Callable[[], AbstractAsyncContextManager[None]]
"""While its block runs, another worker uses the slot of the one that waits in it."""


class DocumentOffloader:
    """Reads large documents. The caller waits in a block of `stand_in`, unless too much is waiting already. Bodies of
    `LARGE` and more wait in files in `folder`, or in memory if it is None."""

    def __init__(
        self,
        stand_in: StandIn = nullcontext,
        process: ChildProcess | None = None,
        events: Events | None = None,
        retry_s: float = RETRY_S,
        processes: int = 1,
        makes_texts: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._stand_in = stand_in
        self._folder = folder
        self._processes = [process] if process else [ChildProcess(makes_texts=makes_texts) for _ in range(processes)]
        self._makes_texts = makes_texts
        self._turns = FairTurns(self._processes, shares_cores=True)
        self._steps = FairTurns([None], rest=1.0)  # half of the event loop's time is for everything else
        self._events = events or Events()
        self._retry_s = retry_s
        self._budget = WorkBudget()
        self._inline = WorkBudget(INLINE_ORDINARY_S, INLINE_HEAVY_S, INLINE_SHARE)
        self._waiting_documents = self._waiting_bytes = 0  # with lent slots
        self._aside_bytes = 0

    def __repr__(self) -> str:
        return f"<DocumentOffloader waiting={self._waiting_documents} bytes={self._waiting_bytes} {self._processes!r}>"

    async def start(self) -> None:
        """Start the processes now if every page needs one. If that fails, the first page tries again, and reports it."""

        async def start_one() -> None:
            async with self._turns.turn("") as process:
                with contextlib.suppress(ChildNotStarted):
                    await process.start()

        if self._makes_texts:
            await asyncio.gather(*(start_one() for _ in self._processes))

    def read_at_once(self, document: Document, limits: ParseLimits, domain: str) -> ParsedDocument | None:
        """What `read_if_small` returns; None if the pages of `domain` took long before."""
        now, began = asyncio.get_running_loop().time(), time.thread_time()
        if self._inline.is_heavy(domain, now):
            return None
        parsed = read_if_small(document, limits)
        took_s = min(time.thread_time() - began, INLINE_HEAVY_S)  # the first page also imports the parser
        self._inline.spend(domain, took_s, now)
        return parsed

    async def contents(self, document: Document, limits: ParseLimits, exchange: Exchange) -> ParsedDocument:
        """The contents of `document` with the body of `exchange`, which it does not hold: that may wait in a file."""
        found = self.read_at_once(document._replace(body=exchange.body), limits, domain_of(host_of(document.url)))
        return found or await self.read(document, limits, exchange)

    async def read(self, document: Document, limits: ParseLimits, exchange: Exchange) -> ParsedDocument:
        """The contents of `document` with the body of `exchange`: none if it exceeds the limits on time or memory, which is
        counted as `unread`."""
        job, size = ReadJob(document._replace(body=b""), limits), len(exchange.body)
        parsed = await self._in_turn(job, exchange, is_large=True, is_needed=True)
        if parsed is None:
            found = Extracted(error="unread", dropped={"unread": 1})
            return ParsedDocument(found, NO_HINTS, size, ("unread",))
        return cast(ParsedDocument, parsed)

    async def extract(self, job: ExtractionJob, exchange: Exchange, is_large: bool = True) -> Extraction:
        """What `job` extracts from the body of `exchange`: nothing if it exceeds the limits on time or memory, or if its
        domain has used up its budget, which is reported as `unread`. `is_large`: its decoded size is above `SMALL`, or
        unknown."""
        return await self._in_turn(job, exchange, is_large) or unread(job.rules)

    async def text_digest(self, job: DigestJob, exchange: Exchange, is_large: bool = True) -> str:
        """The digest of the text of `exchange`: empty if it exceeds the limits on time or memory, or if its domain has
        used up its budget."""
        return await self._in_turn(job, exchange, is_large) or ""

    async def content(self, job: ContentJob, exchange: Exchange) -> Content | None:
        """The content of the page of `exchange`: only its whole text, with the cut "text", if it exceeds the limits on time
        or memory. None if its domain has used up its budget. The caller keeps its slot."""
        loop, domain = asyncio.get_running_loop(), domain_of(host_of(job.url))
        is_large = job.page.decoded_size > SMALL or "unread" in job.page.cut
        is_heavy = is_large or self._budget.is_heavy(domain, loop.time())
        async with self._put_aside(exchange) as (_, body), self._turns.turn(domain, is_heavy) as process:
            if self._budget.is_spent(domain, loop.time()):
                return None
            content = await self._run(process, job, await body())
            if content is None and job.wanted.text != "off":
                content = await self._run(process, msgspec.structs.replace(job, is_hasty=True), await body())
        return content or UNREAD

    async def in_steps(self, domain: str, steps: Iterator[None]) -> bool:
        """Exhaust `steps`, each of which takes some milliseconds of the event loop: at once if all are quick, otherwise in
        turns of `domain`. Returns False if some are left, because they take too long in all."""
        loop, left_s = asyncio.get_running_loop(), MOST_S
        if _is_over(steps, loop.time() + STEP_S, loop):
            return True
        async with self._stand_in():
            while left_s > 0:
                async with self._steps.turn(domain, is_heavy=True):
                    began = loop.time()
                    if _is_over(steps, began + STEP_S, loop):
                        return True
                    left_s -= loop.time() - began
        return False

    async def stop(self) -> None:
        """End the processes. The next document starts another."""
        for process in self._processes:
            await process.stop()

    async def _in_turn(self, job: Job, exchange: Exchange, is_large: bool, is_needed: bool = False) -> Any:
        """The result of `job`, None if there is none. The slot of the caller is lent meanwhile, unless too much waits.
        `is_needed`: also if its domain has used up its budget."""
        loop, domain = asyncio.get_running_loop(), domain_of(host_of(job.url))
        is_heavy = is_large or self._budget.is_heavy(domain, loop.time())
        async with (
            self._put_aside(exchange) as (size, body),
            self._lent(size),
            self._turns.turn(domain, is_heavy) as process,
        ):
            if not is_needed and self._budget.is_spent(domain, loop.time()):
                return None
            return await self._run(process, job, await body())

    @asynccontextmanager
    async def _put_aside(self, exchange: Exchange) -> AsyncIterator[tuple[int, Callable[[], Awaitable[bytes]]]]:
        """A block for which the body of `exchange` leaves memory, if it is large and has to wait. Yields how much of it
        still takes memory, and what brings it back. At the end of the block, it is back. Nobody else reads the exchange
        meanwhile, although it is frozen: what handles its page waits in this block."""
        size, file = len(exchange.body), None
        if self._folder and self._turns.is_taken and LARGE <= size <= MAX_ASIDE_BYTES - self._aside_bytes:
            self._aside_bytes += size
            try:
                file = await asyncio.to_thread(_written, exchange.body, self._folder)
            except OSError:  # the disk is full, or the folder is gone
                pass
            finally:
                self._aside_bytes -= size if file is None else 0

        async def body() -> bytes:
            if file and not exchange.body:
                msgspec.structs.force_setattr(exchange, "body", await asyncio.to_thread(file.read))
            return exchange.body

        if file is None:
            yield size, body
            return
        with file:
            msgspec.structs.force_setattr(exchange, "body", b"")
            try:
                yield 0, body
            finally:
                self._aside_bytes -= size
                if not exchange.body:  # without its turn
                    file.seek(0)
                    msgspec.structs.force_setattr(exchange, "body", file.read())

    @asynccontextmanager
    async def _lent(self, size: int) -> AsyncIterator[None]:
        """A block in which a document of `size` bytes waits. The slot of the caller is lent, unless too much waits."""
        if self._waiting_documents >= MAX_WAITING_DOCUMENTS or self._waiting_bytes + size > MAX_WAITING_BYTES:
            yield
            return
        self._waiting_documents, self._waiting_bytes = self._waiting_documents + 1, self._waiting_bytes + size
        try:
            async with self._stand_in():
                yield
        finally:
            self._waiting_documents, self._waiting_bytes = self._waiting_documents - 1, self._waiting_bytes - size

    async def _run(self, process: ChildProcess, job: Job, body: bytes) -> Any:
        """The result of `job`, None if there is none. It counts against the budget of its domain."""
        tries, loop, domain = 0, asyncio.get_running_loop(), domain_of(host_of(job.url))
        while tries < TRIES:
            try:
                result = await process.run(job, body)
                self._budget.spend(domain, job.CPU_S if result is None else process.cpu_s, loop.time())
                return result
            except ChildNotStarted as error:
                self._events.emit(OwnFailure(FailureKind.MACHINE, f"no process for large documents starts: {error}"))
                await asyncio.sleep(self._retry_s)
            except ChildEnded as error:
                log(logging.WARNING, "offloaded_document_unread", url=job.url, error=error)
                tries += 1 if error.code in _NOT_THE_PAGES_FAULT else TRIES
        self._budget.spend(domain, job.CPU_S, loop.time())
        return None


def _written(body: bytes, folder: Path) -> BinaryIO:
    """A file in `folder` without a name that has `body`, at its beginning. Raises OSError."""
    with contextlib.ExitStack() as failed:
        file = failed.enter_context(tempfile.TemporaryFile(dir=folder))
        file.write(body)
        file.seek(0)
        failed.pop_all()
    return cast(BinaryIO, file)


def _is_over(steps: Iterator[None], until: float, loop: asyncio.AbstractEventLoop) -> bool:
    """Make some `steps`, not many after the time `until`. Whether these were the last ones."""
    return all(loop.time() < until for _ in steps)


if __name__ == "__main__":
    main()
