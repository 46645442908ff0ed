"""The directory over HTTP, with a real server and a real client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from crawler.app.keys import CACHED_S, SIGNED_S, KeyServer
from crawler.errors import UserError
from crawler.identity.web_bot_auth import MEDIA_TYPE, WELL_KNOWN
from tests.identity import site
from tests.identity.signed_requests import DIRECTORY, NOW, key_in


@asynccontextmanager
async def serving(server: KeyServer) -> AsyncIterator[str]:
    await server.start("127.0.0.1:0")
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def test_the_directory_is_served_with_a_signature_per_key(tmp_path: Path) -> None:
    """Whatever Host is asked for: a signature for another name would let others serve the keys as theirs."""
    keys = [key_in(tmp_path, "new.pem"), key_in(tmp_path, "old.pem")]
    async with serving(KeyServer(keys, DIRECTORY, wall=lambda: NOW)) as at, aiohttp.ClientSession() as session:
        async with session.get(at + WELL_KNOWN, headers={"Host": "other.example"}) as response:
            body, fields = await response.read(), {name.lower(): value for name, value in response.headers.items()}
        assert (response.status, fields["content-type"]) == (200, MEDIA_TYPE)
        assert fields["cache-control"] == f"max-age={CACHED_S}"
        assert site.check_directory("crawler.example", fields, body, NOW) == {key.thumbprint for key in keys}
        with pytest.raises(site.Refused):
            site.check_directory("other.example", fields, body, NOW)
        tag = fields["etag"]
        for known in (tag, f"W/{tag}", f'"x", W/{tag}', "*"):
            async with session.get(at + WELL_KNOWN, headers={"If-None-Match": known}) as response:
                assert (response.status, await response.read()) == (304, b""), known
        async with session.get(at + WELL_KNOWN, headers={"If-None-Match": '"x", W/"y"'}) as response:
            assert response.status == 200
        async with session.head(at + WELL_KNOWN) as response:
            assert response.status == 200
        async with session.get(at + "/other") as response:
            assert response.status == 404


async def test_the_directory_is_also_at_the_path_of_its_url(tmp_path: Path) -> None:
    """If `identity.directory` is an origin, verifiers of this revision find it, and those of earlier ones, which add the
    well-known path."""
    server = KeyServer([key_in(tmp_path)], "https://crawler.example")
    assert server.paths == ["/", WELL_KNOWN]
    async with serving(server) as at, aiohttp.ClientSession() as session:
        for path in server.paths:
            async with session.get(at + path) as response:
                assert response.status == 200


@pytest.mark.parametrize("path", ["/{a", "/{name}", "/a%7Bb%20c", "/%2Ewell-known/x"])
async def test_braces_in_the_path_of_the_directory_are_not_a_pattern(tmp_path: Path, path: str) -> None:
    server = KeyServer([key_in(tmp_path)], f"https://crawler.example{path}")
    async with serving(server) as at, aiohttp.ClientSession() as session:
        for asked, status in ((path, 200), ("/other", 404)):
            async with session.get(at + asked) as response:
                assert response.status == status


async def test_the_signatures_are_renewed_long_before_they_expire(tmp_path: Path) -> None:
    now = [NOW]
    async with (
        serving(KeyServer([key_in(tmp_path)], DIRECTORY, wall=lambda: now[0])) as at,
        aiohttp.ClientSession() as session,
    ):
        seen = []
        for _ in range(3):
            async with session.get(at + WELL_KNOWN) as response:
                seen.append(response.headers["Signature-Input"])
            now[0] += CACHED_S / 2
    assert seen[0] == seen[1] != seen[2]
    assert 10 * CACHED_S < SIGNED_S


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    first, second = KeyServer([key], DIRECTORY), KeyServer([key], DIRECTORY)
    async with serving(first):
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1:{first.port}.*choose another --listen"):
            await second.start(f"127.0.0.1:{first.port}")
