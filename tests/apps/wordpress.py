"""WordPress with a database of its own, for a crawl that is logged in: `with wordpress(folder) as site:`."""

from __future__ import annotations

import contextlib
import http.cookiejar
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.apps.site import PAGES, Site, numbered, prose, run, serving
from tests.e2e.harness import wait_until
from tests.ports import free_port

PASSWORD = "secret-pass-123"

_INSTALL = """<?php
define('WP_INSTALLING', true);
require 'wp-load.php';
require 'wp-admin/includes/upgrade.php';
wp_install('Council', 'clerk', 'clerk@example.org', true, '', '{password}');
"""

_FILL = """<?php
require 'wp-load.php';
switch_theme('twentytwentyone');
update_option('permalink_structure', '/%year%/%monthnum%/%postname%/');
update_option('posts_per_page', 10);
flush_rewrite_rules();
foreach (file('texts') as $number => $text) {
    $number += 1;
    $id = wp_insert_post([
        'post_title' => "Report $number", 'post_name' => "report$number", 'post_content' => "<p>$text</p>",
        'post_status' => 'publish', 'post_author' => 1, 'tags_input' => ['tag' . $number % 5],
        'post_date' => sprintf('2026-%02d-%02d 10:00:00', 1 + $number % 6, 1 + $number % 28),
    ]);
    wp_insert_comment(['comment_post_ID' => $id, 'comment_content' => "Thanks for $number.", 'comment_author' => 'A',
        'comment_approved' => 1]);
}
"""


_ROUTER = """<?php
if ($_SERVER['REQUEST_URI'] !== '/robots.txt') return false;
$_SERVER['SCRIPT_NAME'] = '/index.php';
require 'index.php';
"""  # the server of PHP looks for a file where a name has a suffix


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[Path]:
    """A running MariaDB with the database `wordpress`. Yields its socket."""
    data, listen = folder / "mariadb", folder / "mariadb.sock"
    who = ["--user=root"] if os.geteuid() == 0 else []
    quick = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    words = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    run(*words, "--skip-test-db", *quick, *who, folder=folder)
    words = ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={listen}", "--skip-networking", *quick, *who]
    with (folder / "mariadb.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            wait_until(listen.exists, "the database", 60)
            run(
                "mariadb",
                "--no-defaults",
                f"--socket={listen}",
                "--user=root",
                folder=folder,
                stdin="CREATE DATABASE wordpress",
            )
            yield listen
        finally:
            process.terminate()


def _log_in(url: str) -> str:
    """The cookies of a session."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"{url}wp-login.php").close()
    form = urllib.parse.urlencode({"log": "clerk", "pwd": PASSWORD, "testcookie": "1"})
    opener.open(f"{url}wp-login.php", form.encode()).close()
    cookies = {cookie.name: cookie.value for cookie in jar}
    assert any(name.startswith("wordpress_logged_in") for name in cookies), cookies
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


@contextlib.contextmanager
def wordpress(folder: Path) -> Iterator[Site]:
    root, port = folder / "wordpress", free_port()
    ignored = shutil.ignore_patterns(".htaccess", "wp-config.php")
    shutil.copytree("/usr/share/wordpress", root, ignore=ignored, ignore_dangling_symlinks=True)
    with _database(folder) as listen:
        url = f"http://127.0.0.1:{port}"
        named = {"DB_NAME": "wordpress", "DB_USER": "root", "DB_PASSWORD": "", "DB_HOST": f"localhost:{listen}"}
        named |= {"WP_HOME": url, "WP_SITEURL": url, "AUTH_KEY": "a", "LOGGED_IN_KEY": "b", "NONCE_KEY": "c"}
        named |= {"AUTH_SALT": "d", "LOGGED_IN_SALT": "e", "NONCE_SALT": "f"}
        constants = "".join(f"define('{name}', '{value}');\n" for name, value in named.items())
        more = "define('DISABLE_WP_CRON', true);\ndefine('WP_HTTP_BLOCK_EXTERNAL', true);\n$table_prefix = 'wp_';\n"
        (root / "wp-config.php").write_text(f"<?php\n{constants}{more}require ABSPATH . 'wp-settings.php';\n")
        (root / "texts").write_text("\n".join(prose(number) for number in range(1, PAGES + 1)))
        run("php", folder=root, stdin=_INSTALL.format(password=PASSWORD))
        run("php", folder=root, stdin=_FILL)
        (root / "texts").unlink()
        words: list[str | Path] = ["php", "-S", f"127.0.0.1:{port}", "-t", root, root / "router.php"]
        (root / "router.php").write_text(_ROUTER)
        content, address = numbered("report{}"), r"/2026/\d\d/(report\d+)/"
        with serving(words, folder, content, address, port=port, PHP_CLI_SERVER_WORKERS="4") as site:
            yield replace(site, cookie=_log_in(site.url), private="wp-admin/profile.php")
