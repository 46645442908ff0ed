"""A site of quotes, a shop and some small sites on one server, for spiders that are written for Scrapy and for us.

Spiders of Scrapy reach it as a proxy, so a request may name a whole URL.
"""

from __future__ import annotations

import json
from collections import Counter
from urllib.parse import parse_qs, urlsplit

from tests.site import Reply, Request, Site

QUOTES = [(f"Quote {number} on life", f"Author {number % 4}") for number in range(12)]
ON_A_PAGE = 4
PRODUCTS = 8
ON_SALE = (3, 6)
TEAS = 5
SITES = 8
TOKEN, SESSION = "t0ken", "s3ssion"


class Sites(Site):
    """`stories`: how many the news have. `asked_for`: how often each URL was."""

    def __init__(self) -> None:
        super().__init__()
        self.stories = 3
        self.asked_for = Counter[str]()

    def respond(self, request: Request) -> Reply | str | bytes | None:
        parts = urlsplit(request.path)
        host, path = parts.hostname or request.host, parts.path
        self.asked_for[f"{host}{path}"] += 1
        query = {
            name: values[0] for name, values in parse_qs(f"{parts.query}&{request.body.decode('latin-1')}").items()
        }
        if path == "/robots.txt":
            return None
        if host == "quotes.test":
            return self._quotes(request, path, query)
        if host in ("shop.test", "127.0.0.1"):
            return self._shop(path)
        if host == "store.test":
            return self._store(request, path, query)
        return self._site(int(host.removeprefix("site").removesuffix(".test")), path)

    def _quotes(self, request: Request, path: str, query: dict[str, str]) -> Reply | str | None:
        match path.strip("/").split("/"):
            case ["login"] if request.method == "POST":
                known = {"csrf": TOKEN, "username": "john", "password": "secret"}
                if query.items() >= known.items() and "visitor=7" in request.headers.get("Cookie", ""):
                    return Reply("", 302, {"Location": "/members/1/", "Set-Cookie": f"session={SESSION}; Path=/"})
                return Reply("wrong", 403)
            case ["login"]:
                form = (
                    f'<a href=/members/1/>1</a><form method=post><input type=hidden name=csrf value="{TOKEN}">'
                    "<input name=username>"
                    "<input type=password name=password><input type=submit value=Login></form>"
                )
                return Reply(form, headers={"Set-Cookie": "visitor=7; Path=/"})
            case ["members", number]:
                has_session = SESSION in request.headers.get("Cookie", "")
                return _quotes(int(number), "/members/") if has_session else Reply("log in", 403)
            case ["page", number]:
                return _quotes(int(number), "/page/")
            case ["search"] if request.method == "POST":
                return _quotes(int(query["page"]), "?") if query.get("q") == "life" else Reply("", 400)
            case ["author", number]:
                return f"<h3>Author {number}</h3><span class=born>March {number}, 1900</span>"
            case ["api", "quotes"]:
                page = int(query["page"])
                quotes = [{"text": text, "author": {"name": name}} for text, name in _of_page(page)]
                whole = {"page": page, "has_next": page * ON_A_PAGE < len(QUOTES), "quotes": quotes}
                return Reply(json.dumps(whole), headers={"Content-Type": "application/json"})
        return None

    def _shop(self, path: str) -> Reply | str | bytes | None:
        match path.strip("/").split("/"):
            case ["products"]:
                return "".join(
                    f"<li class=product><a href=/product/{n}>Product {n}</a><img src=/image/{n}.png>"
                    f"{'<b class=sale>Sale</b>' if n in ON_SALE else ''}"
                    for n in range(1, PRODUCTS + 1)
                )
            case ["product", number] if int(number) <= PRODUCTS:
                return f"<h1>Product {number}</h1><p class=price>{number}.50</p>"
            case ["image", name]:
                return Reply(b"\x89PNG\r\n\x1a\n" + name.encode(), headers={"Content-Type": "image/png"})
            case ["sitemap.xml"]:
                urls = [f"/product/{n}" for n in range(1, PRODUCTS + 1)] + ["/about"]
                locations = "".join(f"<url><loc>http://shop.test{url}</loc></url>" for url in urls)
                whole = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{locations}</urlset>'
                return Reply(whole, headers={"Content-Type": "application/xml"})
            case ["prices.csv"]:
                rows = "".join(f"{n};'Product; {n}';{n}.50\r\n" for n in range(1, PRODUCTS + 1))
                return Reply(f"id;name;price\r\n{rows}", headers={"Content-Type": "text/csv"})
            case ["about"]:
                return "<h1>About us</h1>"
            case ["broken"]:
                return Reply("broken", 500)
            case ["dropped"]:
                raise ConnectionAbortedError  # closes the connection without an answer
            case ["news"]:
                return "".join(f"<a class=story href=/news/{n}>Story</a>" for n in range(self.stories))
            case ["news", number]:
                return f"<h1>Story {number}</h1>"
        return None

    def _store(self, request: Request, path: str, query: dict[str, str]) -> Reply | str | bytes | None:
        """A shop for members, with a search form and an API."""
        if path == "/login" and request.method == "POST":
            is_right = query.items() >= {"csrf": TOKEN, "user": "robot", "password": "secret"}.items()
            session = {"Location": "/search", "Set-Cookie": f"session={SESSION}; Path=/; HttpOnly"}
            return Reply("", 303, session) if is_right else Reply("wrong", 403)
        if path == "/login":
            names = f'<input type=hidden name=csrf value="{TOKEN}"><input name=user><input type=password name=password>'
            return f"<form method=post>{names}<button>Log in</button></form>"
        if SESSION not in request.headers.get("Cookie", ""):
            return Reply("log in", 403)
        match path.strip("/").split("/"):
            case ["search"] if "q" in query:
                page = int(query.get("page", 1))
                found = range(2 * page - 1, min(2 * page, TEAS) + 1)
                products = "".join(f"<li><a class=product href=/product/{n}>{query['q']} {n}</a></li>" for n in found)
                following = f"<a class=next href='/search?q={query['q']}&page={page + 1}'>more</a>"
                return products + (following if 2 * page < TEAS else "")
            case ["search"]:
                return "<form action=/search class=search><input name=q><button>Search</button></form>"
            case ["product", number]:
                return f"<h1>tea {number}</h1><img src=/image/{number}.png data-sku={number}>"
            case ["api", "price", number]:
                whole = json.dumps({"price": int(number) + 0.5, "currency": "EUR"})
                return Reply(whole, headers={"Content-Type": "application/json"})
            case ["image", name]:
                return Reply(b"\x89PNG\r\n\x1a\n" + name.encode(), headers={"Content-Type": "image/png"})
        return None

    def _site(self, number: int, path: str) -> str | None:
        below = [site for site in (2 * number + 2, 2 * number + 3) if site < SITES]
        links = "".join(f"<a href=http://site{site}.test/>site</a>" for site in below)
        if path == "/":
            return f"<title>Site {number}</title>{links}<a href=/about>about</a>"
        return f"<title>About {number}</title>" if path == "/about" else None


def _of_page(number: int) -> list[tuple[str, str]]:
    return QUOTES[(number - 1) * ON_A_PAGE : number * ON_A_PAGE]


def _quotes(number: int, following: str) -> str:
    quotes = "".join(
        f"<div class=quote><span class=text>{text}</span> by <small class=author>{author}</small>"
        f"<a class=about href=/author/{author.removeprefix('Author ')}>about</a></div>"
        for text, author in _of_page(number)
    )
    has_next = number * ON_A_PAGE < len(QUOTES)
    return quotes + (f'<li class=next><a href="{following}{number + 1}/">Next</a></li>' if has_next else "")
