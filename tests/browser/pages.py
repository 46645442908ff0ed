"""Pages for a browser: typical ones, hostile ones, and one with forty ways out; and the servers that must hear nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiohttp import web

USER_AGENT = "peercrawl-test/1.0 (+https://operator.example)"

PAGES: dict[str, str] = {
    "/simple": "<!doctype html><title>Simple</title><h1>Simple</h1><p>Plain text.</p><a href=/a>a</a>",
    "/app": """<!doctype html><title>Shop</title><link rel=stylesheet href=/app.css><div id=root></div>
        <script src=/app.js></script>""",
    "/frames": """<iframe src=/simple></iframe><iframe src=http://other.test/inner></iframe>
        <iframe srcdoc="<script src=/app2.js></script>"></iframe><iframe src="data:text/html,<p>data"></iframe>""",
    "/inner": "<p>inner<script>fetch('/api/inner')</script>",
    "/workers": """<p id=o></p><script>
        const w = new Worker('/worker.js'); w.onmessage = e => o.textContent += ' worker:' + e.data; w.postMessage(1);
        const s = new SharedWorker('/shared.js'); s.port.onmessage = e => o.textContent += ' shared:' + e.data;
        s.port.start(); const b = new Worker(URL.createObjectURL(new Blob([
            "fetch('http://site.test/api/blob').then(r => r.text()).then(t => postMessage(t))"])));
        b.onmessage = e => o.textContent += ' blob:' + e.data;
        </script>""",
    "/cookies": """<p id=o></p><script>document.cookie = 'js=1'; fetch('/api/set-cookie').then(() => fetch('/api/cookie'))
        .then(r => r.text()).then(t => o.textContent = `server: ${t} page: ${document.cookie}`)</script>""",
    "/shadow": """<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<a href=/in-shadow>x</a>'</script>""",
    "/cors": """<p id=o></p><script>fetch('http://other.test/api/x').then(r => r.text())
        .then(t => o.textContent = 'read', e => o.textContent = 'refused ' + e.name)</script>""",
    "/tamper": """<p>real text</p><script>Element.prototype.getHTML = () => 'FOOLED';
        Object.defineProperty(Element.prototype, 'innerHTML', {get: () => 'FOOLED'});
        Document.prototype.querySelectorAll = () => { throw 1 }; JSON.stringify = () => 'FOOLED';
        XMLSerializer.prototype.serializeToString = () => 'FOOLED'</script>""",
    "/names": """<p>real text<form name=documentElement><input name=shadowRoot></form><img name=URL><form name=doctype>
        <input name=querySelectorAll></form><form name=querySelectorAll></form>""",
    "/surrogate": "<p id=o></p><script>o.textContent = 'half \\ud83d pair'</script>",
    "/environment": """<p id=o></p><script>o.textContent = [navigator.userAgent, navigator.onLine, navigator.languages,
        Intl.DateTimeFormat().resolvedOptions().timeZone].join('|')</script>""",
    "/quirks": "<p>no doctype",
    # What leads elsewhere becomes a link.
    "/history": "<script>history.pushState({}, '', '/pushed'); history.replaceState({}, '', '/replaced')</script>",
    "/hash-routes": """<a id=a href=#/b>b</a><p id=o></p><script>
        onhashchange = () => o.innerHTML = `<a href=/found>${location.hash}</a>`; a.click()</script>""",
    "/refresh": "<meta http-equiv=refresh content='0;url=/elsewhere'><p>old",
    "/navigate": "<p>old<script>location.replace('/elsewhere')</script>",
    "/navigate-always": "<p>x<script>location.href = '/elsewhere?' + Math.random()</script>",
    "/window": "<p>main<script>open('/elsewhere'); open('http://127.0.0.1:%(trap)d/x')</script>",
    "/download": """<p>main<iframe src=/file.bin></iframe><script>const a = document.createElement('a');
        a.href = '/elsewhere'; a.download = 'x'; document.body.append(a); a.click();
        a.href = URL.createObjectURL(new Blob(['x'])); a.click()</script>""",
    "/dialogs": """<p>before<script>alert(1); confirm(2); prompt(3); onbeforeunload = e => e.preventDefault();
        document.body.append(' after'); print()</script>""",
    "/banner": """<div id=banner>Cookies? <button onclick="this.parentNode.remove()">Accept</button></div>
        <ul></ul><button class=more onclick="more()">More</button><p id=late></p><script>let n = 0;
        function more() { fetch('/api/' + ++n).then(r => r.text()).then(t => {
            document.querySelector('ul').insertAdjacentHTML('beforeend', '<li>' + t);
            if (n >= 3) document.querySelector('.more').remove() }) }
        setTimeout(() => late.innerHTML = '<b class=price>7</b>', 900)</script>""",
    # Hostile ones.
    "/loop": "<p>text<script>setTimeout(() => { for (;;); }, 50)</script>",
    "/no-root": "<p>text<script>setTimeout(() => document.documentElement.remove())</script>",
    "/loop-at-once": "<p>text<script>for (;;);</script>",
    "/loop-in-workers": """<p>text<script>for (let i = 0; i < 100; i++)
        new Worker(URL.createObjectURL(new Blob(['for (;;);'])))</script>""",
    "/gigabytes": """<p>text<script>const a = []; setTimeout(function f() {
        for (let i = 0; i < 8; i++) { const b = new Uint8Array(16 << 20); b.fill(1); a.push(b) }
        setTimeout(f, 0) }, 10)</script>""",
    "/heap": """<p>text<script>const a = []; setTimeout(function f() {
        for (let i = 0; i < 200000; i++) a.push({x: i, y: 's' + Math.random()}); setTimeout(f, 0) }, 10)</script>""",
    "/elements": """<p>text<script>setTimeout(function f() { for (let i = 0; i < 20000; i++) {
        const d = document.createElement('div'); d.textContent = 'x'.repeat(50); document.body.append(d) }
        setTimeout(f, 0) }, 10)</script>""",
    "/huge": """<p>text<script>const s = 'x'.repeat(1 << 20); for (let i = 0; i < 120; i++) {
        const d = document.createElement('p'); d.title = s; document.body.append(d) }</script>""",
    "/hanging-script": "<p>text<script src=/slow></script>",
    "/hanging-image": "<p>text<img src=/slow>",
    "/polls": "<p>text<script>setInterval(() => fetch('/api/poll'), 100)</script>",
    "/flood": "<p>text<script>for (let i = 0; i < 3000; i++) new Image().src = '/i' + i</script>",
    "/many-frames": """<p>text<script>for (let i = 0; i < 1000; i++) {
        const f = document.createElement('iframe'); f.src = '/simple?' + i; document.body.append(f) }</script>""",
    "/frame-in-frame": "<p>text<iframe src=/frame-in-frame?x></iframe><iframe src=/frame-in-frame?y></iframe>",
    "/windows": "<p>text<script>for (let i = 0; i < 200; i++) open('/elsewhere?' + i)</script>",
    "/console": "<p>text<script>for (let i = 0; i < 200000; i++) console.log('x'.repeat(1000) + i)</script>",
    "/states": """<p>text<script>setInterval(() => { for (let i = 0; i < 1000; i++) {
        history.replaceState({}, '', '/t' + Math.random()); document.title = 'x'.repeat(10000) } }, 1)</script>""",
    "/leaks": """<!doctype html><title>Leaks</title><link rel=dns-prefetch href=//leak.test>
        <link rel=preconnect href=http://127.0.0.1:%(trap)d><link rel=prefetch href=http://127.0.0.1:%(trap)d/prefetch>
        <link rel=prerender href=http://127.0.0.1:%(trap)d/prerender><link rel=manifest href=/manifest.json>
        <link rel=modulepreload href=http://127.0.0.1:%(trap)d/module.js><link rel=icon href=http://127.0.0.1:%(trap)d/icon>
        <script type=speculationrules>{"prerender": [{"source": "list", "urls": ["/simple"]}],
            "prefetch": [{"source": "list", "urls": ["http://site.test/a"]}]}</script>
        <img src=http://127.0.0.9:%(private)d/img><img src=http://169.254.169.254/latest/meta-data/>
        <img src=http://10.0.0.1/><img src=http://localhost:%(trap)d/><img src=http://[::1]:%(trap)d/>
        <img src=file:///etc/passwd><iframe src=file:///etc/passwd></iframe><iframe src=chrome://version></iframe>
        <iframe src=view-source:http://site.test/></iframe><script src=http://127.0.0.1:%(trap)d/x.js></script>
        <video src=http://127.0.0.1:%(trap)d/v.mp4 autoplay></video><object data=http://127.0.0.1:%(trap)d/o></object>
        <embed src=http://127.0.0.1:%(trap)d/e.pdf type=application/pdf>
        <a id=ping href=#x ping=http://127.0.0.1:%(trap)d/ping>x</a><p id=o></p><script>
        const T = 'http://127.0.0.1:%(trap)d', note = (k, v) => { o.textContent += k + ':' + v + ' ' };
        for (const [k, u] of [['fetch', T], ['private', 'http://127.0.0.9:%(private)d/'], ['name', 'http://rebind.test/'],
            ['redirect', '/to-private']]) fetch(u).then(r => note(k, 'OPEN'), e => note(k, e.name));
        navigator.sendBeacon(T + '/beacon', 'x'); navigator.sendBeacon('/beacon', 'x'); ping.click();
        fetch('/post', {method: 'POST', body: 'a=1'}).then(r => note('post', 'OPEN'), e => note('post', e.name));
        fetch('http://other.test/put', {method: 'PUT'}).then(r => note('put', 'OPEN'), e => note('put', e.name));
        for (const u of ['ws://127.0.0.1:%(trap)d/', 'ws://site.test/ws', 'wss://site.test/ws']) {
            const w = new WebSocket(u); w.onerror = () => note('ws', 'error'); w.onopen = () => note('ws', 'OPEN') }
        const es = new EventSource('/events'); es.onmessage = e => note('es', 'OPEN');
        try { new WebTransport('https://127.0.0.1:%(trap)d/').ready.then(() => note('wt', 'OPEN')) } catch (e) {}
        try { const pc = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:%(trap)d'},
            {urls: 'turn:127.0.0.1:%(trap)d?transport=tcp', username: 'u', credential: 'c'}]});
            pc.createDataChannel('x'); pc.createOffer().then(d => pc.setLocalDescription(d)) } catch (e) {}
        const f = document.createElement('form'); f.method = 'POST'; f.action = T + '/form'; f.target = 'hid';
        const i = document.createElement('iframe'); i.name = 'hid'; document.body.append(f, i); f.submit();
        const p = document.createElement('iframe'); p.src = '/frame-to-private'; document.body.append(p);
        new Image().src = 'ftp://127.0.0.1:%(trap)d/';
        new Worker(T + '/worker.js'); navigator.serviceWorker && navigator.serviceWorker.register('/worker.js');
        </script>""",
}

SCRIPTS = {
    "/app.js": """
        const root = document.getElementById('root'); let n = 0, busy = false, more = true;
        root.innerHTML = '<main></main><ul></ul><div id=end>end</div>';
        async function load() { if (busy || !more) return; busy = true;
            const d = await (await fetch('/api/items?from=' + n)).json();
            for (const id of d.items) { const li = document.createElement('li'); li.style.height = '120px';
                li.innerHTML = `<a href=/item/${id}>${id}</a>`; root.querySelector('ul').append(li) }
            n += d.items.length; more = d.more; busy = false }
        fetch('http://other.test/hello', {headers: {'X-Wanted': '1'}}).then(r => r.json()).then(async d => {
            root.querySelector('main').innerHTML = '<h1>' + d.title + '</h1>'; await load();
            new IntersectionObserver(seen => { if (seen.some(e => e.isIntersecting)) load() }).observe(end) })""",
    "/app2.js": "document.body.append('ran')",
    "/worker.js": """onmessage = async () => { postMessage(await (await fetch('/api/worker')).text());
        importScripts('/imported.js') }""",
    "/imported.js": "postMessage('imported')",
    "/shared.js": "onconnect = async e => e.ports[0].postMessage(await (await fetch('/api/shared')).text())",
}


class Asked(NamedTuple):
    method: str
    path: str
    user_agent: str


class Web:
    """The servers. `asked`: the requests that the site got; `leaks`: what reached the servers that nobody may reach."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.leaks: list[str] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append(Asked(request.method, path, request.headers.get("User-Agent", "")))
        cacheable = {"Cache-Control": "max-age=3600"}
        if path in SCRIPTS:
            return web.Response(text=SCRIPTS[path], content_type="text/javascript", headers=cacheable)
        if path == "/app.css":
            return web.Response(text="body { color: red; background: url(/bg.svg) }", content_type="text/css")
        if path == "/hello":
            return web.json_response({"title": "Shop of things"}, headers={"Access-Control-Allow-Origin": "*"})
        if path == "/api/items":
            start = int(request.query["from"])
            return web.json_response({"items": list(range(start, min(start + 10, 60))), "more": start < 50})
        if path == "/api/set-cookie":
            response = web.Response()
            response.set_cookie("hidden", "2", httponly=True)
            return response
        if path == "/api/cookie":
            return web.Response(text=request.headers.get("Cookie", "none"))
        if path.startswith("/api/"):
            return web.Response(text=path[5:])
        if path == "/slow":
            await asyncio.sleep(60)
        if path in ("/to-private", "/frame-to-private"):
            raise web.HTTPFound(f"http://127.0.0.9:{self.private_port}/redirected")
        if path == "/file.bin":
            return web.Response(body=bytes(5000), headers={"Content-Disposition": "attachment"})
        if path in PAGES:
            text = PAGES[path].replace("%(trap)d", str(self.trap_port)).replace("%(private)d", str(self.private_port))
            return web.Response(text=text, content_type="text/html")
        raise web.HTTPNotFound

    async def _private(self, request: web.Request) -> web.StreamResponse:
        self.leaks.append(f"private {request.method} {request.path}")
        return web.Response(headers={"Access-Control-Allow-Origin": "*"})

    async def _raw(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.leaks.append(f"tcp {(await reader.read(100))!r}")
        writer.close()

    def connection_made(self, _: object) -> None: ...

    def datagram_received(self, data: bytes, _: object) -> None:
        self.leaks.append(f"udp {data[:40]!r}")

    def connection_lost(self, _: object) -> None: ...

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[Web]:
        async with contextlib.AsyncExitStack() as stack:
            self.port = await _serve(stack, self._answer, "127.0.0.1")
            self.private_port = await _serve(stack, self._private, "127.0.0.9")
            trap = await asyncio.start_server(self._raw, "127.0.0.1", 0)
            stack.callback(trap.close)
            self.trap_port = trap.sockets[0].getsockname()[1]
            loop = asyncio.get_running_loop()
            udp, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", self.trap_port))  # type: ignore[arg-type, return-value]
            stack.callback(udp.close)
            yield self


async def _serve(stack: contextlib.AsyncExitStack, answer: object, host: str) -> int:
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, host, 0)
    await site.start()
    return int(runner.addresses[0][1])
