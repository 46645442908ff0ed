"""Real applications on loopback, filled by their own commands: `with start(name, folder) as site:`.

Each is in `APPLICATIONS` with what it needs. Debian's packages, `.peers` and `.vitepress` have them (`.ci/run`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from tests.apps.django import calendar, mailing_list, shop
from tests.apps.redmine import DATABASE, redmine
from tests.apps.site import PAGES, PEERS, Site, numbered, prose, run, serving
from tests.apps.wordpress import wordpress
from tests.e2e.harness import ROOT
from tests.ports import free_port

VITEPRESS = Path(os.environ.get("VITEPRESS") or ROOT / ".vitepress")


def _tree(folder: Path) -> Path:
    """A folder with three folders of pages."""
    root = folder / "files"
    for number in range(1, PAGES + 1):
        place = root / f"part{number % 3}" / f"page{number}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"<!doctype html><title>Page {number}</title><p>{prose(number)}</p>")
    return root


@contextlib.contextmanager
def http_server(folder: Path) -> Iterator[Site]:
    words = [sys.executable, "-m", "http.server", "PORT", "--bind", "127.0.0.1", "--directory", _tree(folder)]
    with serving(words, folder, numbered("page{}"), r"/part\d/(page\d+)\.html") as site:
        yield site


def _apache(folder: Path, port: int, more: str) -> list[str | Path]:
    modules = "mpm_event authz_core mime dir alias autoindex deflate filter cgid env"
    (folder / "apache.conf").write_text(
        "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in modules.split())
        + f"ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {folder}/pid\n"
        + f"ErrorLog {folder}/error.log\nTypesConfig /etc/mime.types\nScriptSock {folder}/cgisock\n"
        + ("User www-data\nGroup www-data\n" if os.geteuid() == 0 else "")
        + "AddOutputFilterByType DEFLATE text/html text/plain\n<Directory />\nRequire all granted\n</Directory>\n"
        + more
    )
    _open_to_others(folder)
    return ["apache2", "-f", folder / "apache.conf", "-D", "FOREGROUND"]


def _open_to_others(folder: Path) -> None:
    """Let a server that runs as another user read in `folder`."""
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.geteuid() and len(place.parts) > 2:
            place.chmod(place.stat().st_mode | 0o055)


@contextlib.contextmanager
def autoindex(folder: Path) -> Iterator[Site]:
    port = free_port()
    more = f"DocumentRoot {_tree(folder)}\n<Directory {folder}/files>\nOptions Indexes\n</Directory>\n"
    more += "IndexOptions FancyIndexing HTMLTable\n"
    with serving(
        _apache(folder, port, more), folder, numbered("page{}"), r"/part\d/(page\d+)\.html", port=port
    ) as site:
        yield site


def _repository(folder: Path) -> Path:
    repository = folder / "repositories/minutes.git"
    work = folder / "work"
    work.mkdir()
    identity = {
        f"GIT_{who}_{what}": "council@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    run("git", "init", "-q", "-b", "main", folder=work)
    for number in range(1, 11):
        (work / f"page{number}.txt").write_text(prose(number))
        run("git", "add", "-A", folder=work)
        run("git", "commit", "-q", "-m", f"Add page {number}", folder=work, **identity)
    run("git", "clone", "-q", "--bare", work, repository, folder=folder)
    (repository / "git-daemon-export-ok").touch()
    return repository


@contextlib.contextmanager
def gitweb(folder: Path) -> Iterator[Site]:
    repository, port = _repository(folder), free_port()
    (folder / "gitweb.conf").write_text(f'$projectroot = "{repository.parent}";\n$git_temp = "{folder}";\n1;\n')
    more = f"SetEnv GITWEB_CONFIG {folder}/gitweb.conf\nScriptAlias /gitweb /usr/share/gitweb/gitweb.cgi\n"
    # Its pages say nofollow: the first one is all that a crawler gets.
    named = r"(/gitweb)(?!.)"
    with serving(
        _apache(folder, port, more), folder, frozenset(["/gitweb"]), named, "/gitweb", port, GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*",
    ) as site:  # fmt: skip
        yield site


@contextlib.contextmanager
def cgit(folder: Path) -> Iterator[Site]:
    repository, port = _repository(folder), free_port()
    (folder / "cgitrc").write_text(
        f"virtual-root=/\nrobots=index, follow\ncache-size=0\nrepo.url=minutes\nrepo.path={repository}\nrepo.desc=Minutes\n"
    )
    more = f"SetEnv CGIT_CONFIG {folder}/cgitrc\nScriptAlias / /usr/lib/cgit/cgit.cgi/\n"
    with serving(
        _apache(folder, port, more), folder, numbered("page{}", 10), r"/minutes/tree/(page\d+)\.txt", port=port
    ) as site:
        yield site


@contextlib.contextmanager
def fossil(folder: Path) -> Iterator[Site]:
    environment = {"HOME": str(folder), "FOSSIL_USER": "admin"}
    run("fossil", "init", "r.fossil", "--admin-user", "admin", folder=folder, **environment)
    run("fossil", "user", "capabilities", "nobody", "ghjoru", "-R", "r.fossil", folder=folder, **environment)
    for number in range(1, PAGES + 1):
        following = f"[Page{number + 1}]" if number < PAGES else ""
        run(
            "fossil",
            "wiki",
            "create",
            f"Page{number}",
            "-R",
            "r.fossil",
            folder=folder,
            stdin=f"{prose(number)} {following}",
            **environment,
        )
    words: list[str | Path] = ["fossil", "server", "--port", "PORT", "--localhost", "r.fossil"]
    named = r"/wiki(?:/|\?name=)(Page\d+)"
    with serving(words, folder, numbered("Page{}"), named, "/wcontent", **environment) as site:
        yield site


@contextlib.contextmanager
def dokuwiki(folder: Path) -> Iterator[Site]:
    root = folder / "dokuwiki"
    ignored = shutil.ignore_patterns(".htaccess", "preload.php")
    shutil.copytree("/usr/share/dokuwiki", root, ignore=ignored, ignore_dangling_symlinks=True)
    conf, data = root / "conf", root / "data"
    shutil.copytree(
        "/etc/dokuwiki", conf, ignore=shutil.ignore_patterns("*.auth.php", "local.php"), ignore_dangling_symlinks=True
    )
    (conf / "local.php").write_text(
        f"<?php $conf['title'] = 'Council'; $conf['savedir'] = '{data}'; $conf['useacl'] = 0; $conf['indexdelay'] = 0;\n"
    )
    for name in (
        "pages",
        "attic",
        "media",
        "media_attic",
        "meta",
        "media_meta",
        "cache",
        "index",
        "locks",
        "tmp",
        "log",
    ):
        (data / name).mkdir(parents=True)
    for number in range(1, PAGES + 1):
        links = " ".join(f"[[page{other}]]" for other in (number + 1, number + 2) if other <= PAGES)
        (folder / "text").write_text(f"====== Page {number} ======\n\n{prose(number)}\n\n{links}\n")
        run("php", root / "bin/dwpage.php", "commit", "-m", "new", folder / "text", f"page{number}", folder=folder)
    words: list[str | Path] = ["php", "-S", "127.0.0.1:PORT", "-t", root]
    named = r"/doku\.php\?id=(page\d+)"
    with serving(words, folder, numbered("page{}"), named, "/doku.php?id=page1", PHP_CLI_SERVER_WORKERS="4") as site:
        yield site


@contextlib.contextmanager
def mediawiki(folder: Path) -> Iterator[Site]:
    port, root = free_port(), Path("/usr/share/mediawiki")
    words: list[str | Path] = ["php", root / "maintenance/install.php", "--dbtype", "sqlite", "--dbpath", folder / "db"]
    words += [
        "--confpath",
        folder,
        "--server",
        f"http://127.0.0.1:{port}",
        "--scriptpath",
        "",
        "--pass",
        "secret-pass-123",
    ]
    run(*words, "Council", "Admin", folder=folder)
    configuration = folder / "LocalSettings.php"
    more = "\n$wgJobRunRate = 0;\n$wgShowExceptionDetails = true;\n$wgUsePathInfo = true;\n"
    configuration.write_text(configuration.read_text() + more)
    pages = []
    for number in range(1, PAGES + 1):
        links = " ".join(f"[[Page {other}]]" for other in (number + 1, number + 2) if other <= PAGES)
        for edit in (1, 2):
            text = escape(f"{prose(number)} {links} [[Category:Reports]] edit {edit}")
            pages.append(
                f"<page><title>Page {number}</title><ns>0</ns><revision><timestamp>2026-01-0{edit}T00:00:00Z</timestamp>"
                f"<contributor><username>Admin</username></contributor><text>{text}</text></revision></page>"
            )
    links = " ".join(f"[[Page {number}]]" for number in (1, 11, 21))
    pages.append(
        f"<page><title>Main Page</title><ns>0</ns><revision><timestamp>2027-01-01T00:00:00Z</timestamp>"
        f"<text>{links}</text></revision></page>"
    )
    opening = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
    dump = f"{opening}{''.join(pages)}</mediawiki>"
    environment = {"MW_CONFIG_FILE": str(configuration)}
    run(
        "php",
        root / "maintenance/importDump.php",
        "--uploads",
        "--no-updates",
        folder=folder,
        stdin=dump,
        **environment,
    )
    run("php", root / "maintenance/rebuildrecentchanges.php", folder=folder, **environment)
    server: list[str | Path] = ["php", "-S", f"127.0.0.1:{port}", "-t", root]
    named = r"/index\.php(?:/|\?title=)(Page_\d+)"
    with serving(
        server,
        folder,
        numbered("Page_{}"),
        named,
        "/index.php/Main_Page",
        port,
        PHP_CLI_SERVER_WORKERS="4",
        **environment,
    ) as site:
        yield site


@contextlib.contextmanager
def roundup(folder: Path) -> Iterator[Site]:
    admin, tracker, port = PEERS / "roundup-admin", folder / "tracker", free_port()
    run(admin, "-i", tracker, "install", "classic", "sqlite", folder=folder)
    configuration = tracker / "config.ini"
    text = re.sub(r"(?m)^#?\s*web = .*$", f"web = http://127.0.0.1:{port}/minutes/", configuration.read_text())
    text = re.sub(r"(?m)^#host = NO DEFAULT$", "host = localhost", text)
    text = re.sub(r"(?m)^#?\s*(domain) = .*$", r"\1 = example.org", text)
    configuration.write_text(re.sub(r"(?m)^#?\s*(admin_email) = .*$", r"\1 = a@example.org", text))
    run(admin, "-i", tracker, "initialise", "secret", folder=folder)
    commands = "".join(f'create issue title="{prose(number)}" priority=2 status=2\n' for number in range(1, PAGES + 1))
    run(admin, "-i", tracker, "-u", "admin", folder=folder, stdin=commands + "commit\n")
    who: tuple[str, ...] = ()
    if os.geteuid() == 0:  # it refuses to run as root
        run("chown", "-R", "www-data:www-data", tracker, folder=folder)
        _open_to_others(folder)
        who = ("-u", "www-data", "-g", "www-data")
    words: list[str | Path] = [PEERS / "roundup-server", *who, "-n", "127.0.0.1", "-p", str(port), f"minutes={tracker}"]
    named = r"/minutes/(issue\d+)"
    with serving(words, folder, numbered("issue{}"), named, "/minutes/", port) as site:
        yield site


_TICKETS = """
import sys
from trac.env import open_environment
from trac.ticket.model import Ticket
environment = open_environment(sys.argv[1])
for text in sys.stdin.read().splitlines():
    ticket = Ticket(environment)
    for name, value in dict(summary=text[:40], description=text, reporter="clerk", status="new", type="task").items():
        ticket[name] = value
    ticket.insert()
"""


@contextlib.contextmanager
def trac(folder: Path) -> Iterator[Site]:
    environment = folder / "trac"
    run(PEERS / "trac-admin", environment, "initenv", "Council", "sqlite:db/trac.db", folder=folder)
    texts = "\n".join(prose(number) for number in range(1, PAGES + 1))
    run(PEERS / "python", "-c", _TICKETS, environment, folder=folder, stdin=texts)
    words: list[str | Path] = [
        PEERS / "tracd",
        "--hostname",
        "127.0.0.1",
        "--port",
        "PORT",
        "--single-env",
        f"--basic-auth=trac,{folder / 'htpasswd'},Council",
        environment,
    ]
    (folder / "htpasswd").touch()  # without it, the login is an error of the server
    with serving(words, folder, numbered("{}"), r"/ticket/(\d+)", "/report/1") as site:
        yield site


@contextlib.contextmanager
def vitepress(folder: Path) -> Iterator[Site]:
    root = folder / "docs"
    (root / ".vitepress").mkdir(parents=True)
    (folder / "node_modules").symlink_to(VITEPRESS / "node_modules")
    port = free_port()
    (root / ".vitepress/config.mjs").write_text(
        f"export default {{title: 'Council', sitemap: {{hostname: 'http://127.0.0.1:{port}'}}}}\n"
    )
    for number in range(1, PAGES + 1):
        following = f"[next](./page{number + 1}.md)" if number not in (PAGES, PAGES // 2) else ""
        (root / f"page{number}.md").write_text(f"# Page {number}\n\n{prose(number)}\n\n{following}\n")
    # Half of the pages are only in the sitemap, which no robots.txt names.
    (root / "index.md").write_text("# Council\n\n[first](./page1.md)\n")
    run("node_modules/.bin/vitepress", "build", "docs", folder=folder)
    words = [
        sys.executable,
        "-m",
        "http.server",
        str(port),
        "--bind",
        "127.0.0.1",
        "--directory",
        root / ".vitepress/dist",
    ]
    with serving(words, folder, numbered("page{}"), r"/(page\d+)(?:\.html)?", port=port) as site:
        yield site


@dataclass(frozen=True)
class Application:
    """`needs`: programs and paths. `most`: pages that a crawl with the defaults may fetch. `in_ci`: not too slow for CI.
    `says`: patterns for fields of the lines of content pages, in which N is the number of the page and URL its URL."""

    start: Callable[[Path], contextlib.AbstractContextManager[Site]]
    needs: tuple[str | Path, ...]
    most: int
    in_ci: bool = True
    says: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        return all(Path(need).exists() if "/" in str(need) else shutil.which(str(need)) for need in self.needs)


ENGLISH = {"lang": "en(-US)?", "charset": "utf-8"}

APPLICATIONS = {
    "http.server": Application(http_server, (), 40, says={"title": "Page N", "last_modified": ".* GMT"}),
    "Apache autoindex": Application(autoindex, ("apache2",), 80, says={"title": "Page N", "last_modified": ".* GMT"}),
    "gitweb": Application(gitweb, ("apache2", "/usr/share/gitweb/gitweb.cgi"), 2),
    "cgit": Application(cgit, ("apache2", "/usr/lib/cgit/cgit.cgi"), 1_000),
    "Fossil": Application(fossil, ("fossil",), 1_700),
    "DokuWiki": Application(
        dokuwiki, ("php", "/usr/share/dokuwiki/doku.php"), 120, says={"title": r"pageN \[Council\]", **ENGLISH}
    ),
    "MediaWiki": Application(
        mediawiki,
        ("php", "/usr/share/mediawiki/index.php"),
        350,
        says={"title": "Page N - Council", "last_modified": ".* GMT", "content_language": "en", **ENGLISH},
    ),
    "Roundup": Application(
        roundup, (PEERS / "roundup-server",), 200, says={"title": "Issue N: Report N of.*", "charset": "utf-8"}
    ),
    "Trac": Application(
        trac, (PEERS / "tracd",), 400, says={"title": r"#N \(Report N of the committee.*\) – Council", **ENGLISH}
    ),
    "Redmine": Application(
        redmine, ("puma", DATABASE), 500, in_ci=False, says={"title": "Bug #N: Report N - Council - Redmine", **ENGLISH}
    ),
    "django-oscar": Application(
        shop, (PEERS / "django-admin",), 400, in_ci=False, says={"title": r"Report N \| Oscar -", **ENGLISH}
    ),
    "django-scheduler": Application(calendar, (PEERS / "django-admin",), 200),
    "HyperKitty": Application(
        mailing_list,
        (PEERS / "django-admin",),
        400,
        says={
            "title": r"Report \d+ - council@example\.org - example\.com",
            "content_language": "en",
            "charset": "utf-8",
        },
    ),
    "WordPress": Application(
        wordpress,
        ("php", "mariadbd", "/usr/share/wordpress/index.php"),
        600,
        says={"title": "Report N – Council", "canonical": "URL", "published": "2026-.*", **ENGLISH},
    ),
    "VitePress": Application(
        vitepress,
        ("node", VITEPRESS / "node_modules/.bin/vitepress"),
        40,
        says={"title": r"Page N \| Council", "charset": "utf-8", "lang": "en-US"},
    ),
}


def start(name: str, folder: Path) -> contextlib.AbstractContextManager[Site]:
    """Install, fill and serve an application in an empty folder."""
    return APPLICATIONS[name].start(folder)
