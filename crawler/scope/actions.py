"""Recognises links that do something when they are fetched: log out, delete, edit, unsubscribe, fill a cart. Pure.

RFC 9110 9.2.1 wants GET to be safe, but applications rely on nobody with a session following such links. Where a rule
sends secrets or keeps cookies, they are therefore not followed. Elsewhere they do no harm, but mostly lead to forms and
logins, so those with a query come last.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from crawler.page import Action

_LOGOUT = (
    r"log[-_]?(?:out|off)|sign[-_]?(?:out|off)|user[-_]?log[-_]?(?:out|off)|end[-_]?session"
    r"|abmelden|ausloggen|d[eé]connexion|(?:se[-_])?d[eé]connecter|cerrar[-_]?sesi[oó]n|salir|uitloggen|afmelden"
    r"|terminar[-_]?sess[aã]o|sair|wyloguj|odhl[aá]sit|logga[-_]?ut|выход|выйти|ログアウト|退出|登出"
)
_DELETE = r"(?:delete|remove|destroy|trash|untrash|purge|erase)|loeschen|löschen|supprimer|eliminar|borrar"
_EDIT = r"edit|bearbeiten|editar|modifier"
_UNSUBSCRIBE = r"unsubscribe|opt[-_]?out|cancel[-_]?(?:subscription|account|order)|close[-_]?account|abbestellen"
_CART = (
    r"(?:add|remove)[-_]?(?:to|from)?[-_]?(?:cart|basket|bag|wish[-_]?list|compare)|(?:cart|basket|wish[-_]?list)[-_]?(?:add|remove)"
    r"|buy[-_]?now|empty[-_]?cart"
)

_LOGIN = re.compile(
    r"(?:wp[-_]?)?(?:log|sign)[-_]?(?:in|on)|user[-_]?login|auth|authenticate|sso|anmelden|einloggen|connexion|accedi"
    r"|iniciar[-_]?sesi[oó]n|inloggen|entrar|zaloguj|prihlasit|logga[-_]?in|вход|войти|ログイン|登录|登入"
)

_WORDS: dict[Action, re.Pattern[str]] = {
    "logout": re.compile(_LOGOUT),
    "unsubscribe": re.compile(_UNSUBSCRIBE),
    "cart": re.compile(_CART),
    "delete": re.compile(_DELETE),
    "edit": re.compile(_EDIT),
}
"""Words for what a link does, each of which is all of a path segment, or of the name or the value of a parameter."""

_VALUES = re.compile(
    r"update|modify|rename|move|protect|unprotect|revert|rollback|undo|restore|block|unblock|ban|spam|unspam|approve"
    r"|unapprove|publish|unpublish|activate|deactivate|enable|disable|install|uninstall|watch|unwatch|vote|like|unlike"
    r"|follow|unfollow|flag|close|reopen|lock|unlock|mark[-_]?read|save|submit|reset|purge|create|new|add|upload"
)
"""Values of a parameter such as `action` that change something. As segments of a path they may be chapters of a manual."""

_OBJECTS = "comment|post|page|topic|thread|message|user|item|plugin|theme|file|selected|all"
_CHANGED_OBJECT = re.compile(rf"(?:{_VALUES.pattern}|{_EDIT})[-_]?(?:{_OBJECTS})s?")
_DELETED_OBJECT = re.compile(rf"del|(?:del|{_DELETE})[-_]?(?:{_OBJECTS})s?")
"""`action=trashcomment`, `action=install-plugin`"""

_TOKENS = re.compile(
    r"_?(?:wp)?nonce|_?(?:csrf|xsrf)\w*|authenticity_token|form_key|form_token|sesskey|sectok|_token|_xftoken|securitytoken"
    r"|my_post_key"
)
"""Names of parameters that protect against forged requests: who adds one says that the link does something."""

_MANUALS = frozenset(
    {"docs", "doc", "documentation", "help", "manual", "guide", "guides", "reference", "commands", "tutorial"}
)

_VERBS = frozenset(
    {"action", "do", "task", "mode", "op", "act", "cmd", "command", "a", "m", "method", "func", "doaction"}
)
"""Parameters whose values are verbs. Some have an @ (`@action=logout`)."""

_VIEWS = frozenset({"replytocom", "oldid", "diff", "printable", "print", "redlink", "veaction"})
"""Parameters of views of a page that is at another URL, too."""

_SHOWN_AS = re.compile("history|raw|info|print|diff|annotate|login|register|signup|compose|reply|quote|report|email")
"""Values of such a parameter that show a form, or a page that is at another URL, too."""

_SUFFIX = re.compile(r"\.[a-z]{2,5}$")
_PARTS = re.compile(r"[/:.!|]")

_LAST_WORD = re.compile(
    rf"(?:.*[-_:.])?(?:do|perform|process)?(?:{_LOGOUT})(?:[-_]?(?:user|confirm|now|action))?"
)  # customer-logout, Special:UserLogout, user.logout


@lru_cache(maxsize=4_096)
def _of_word(word: str) -> Action | None:
    if word.isdecimal():
        return None
    word = _SUFFIX.sub("", unquote(word).lower())
    if _LAST_WORD.fullmatch(word):
        return "logout"
    parts = {word, *_PARTS.split(word)} if _PARTS.search(word) else {word}
    return next((action for action, words in _WORDS.items() if any(words.fullmatch(part) for part in parts)), None)


def is_login(url: str) -> bool:
    """Whether the canonical `url` seems to be that of a page for logging in."""
    path = unquote(url[url.index("/", 8) :].partition("?")[0]).lower()
    return any(_LOGIN.fullmatch(segment.partition(".")[0]) for segment in path.split("/"))


def action_of(url: str) -> Action | None:
    """What the canonical `url` seems to do, or None."""
    path, _, query = url[url.index("/", 8) + 1 :].partition("?")
    segments = path.split("/")
    for number, segment in enumerate(segments):
        found = _of_word(segment) if segment else None
        before = segments[number - 1] if number else ""
        if segment.startswith("del.") or (segment == "del" and segments[number + 1 :]):
            found = "delete"
        elif before.lower() in ("session", "sessions") and segment in ("end", "destroy", "close", "terminate"):
            return "logout"
        elif found != "logout" and (
            before.lower() in _MANUALS or (found == "edit" and segments[0].lower() in _MANUALS)
        ):
            continue
        # `/node/1/edit` and `/cart/add/5`, but not `/edit/how-to-draw/part-2/index.html`
        if found == "logout" or (found and number >= len(segments) - 3):
            return found
        if segment in ("cart", "basket", "wishlist") and segments[number + 1 : number + 2] == ["add"]:
            return "cart"
    return _of_pairs(_pairs(query)) if query else None


@lru_cache(maxsize=4_096)
def _of_name(name: str) -> Action | None:
    return _of_word(name) or ("edit" if _TOKENS.fullmatch(name) else None)


def _of_pairs(pairs: list[tuple[str, str]]) -> Action | None:
    for name, value in pairs:
        if (found := _of_name(name)) is not None:
            return found
        found = _of_word(value)
        if name == "del" or (name in _VERBS and _DELETED_OBJECT.fullmatch(value)):
            return "delete"
        if name in _VERBS and (found or _VALUES.fullmatch(value) or _CHANGED_OBJECT.fullmatch(value)):
            return found or "edit"
        if found == "logout":
            return found
    return None


def comes_last(query: str) -> bool:
    """Whether `query` is that of a link that does something, or shows a form or another view of a page."""
    pairs = _pairs(query)
    for name, value in pairs:
        if name in _VIEWS or (name in _VERBS and _SHOWN_AS.fullmatch(value)):
            return True
        if name == "do" and value not in ("", "show"):  # DokuWiki
            return True
    return _of_pairs(pairs) is not None


def _pairs(query: str) -> list[tuple[str, str]]:
    parts = [pair.partition("=") for pair in query.replace(";", "&").split("&")]
    return [(_plain_name(name), value) for name, _, value in parts]


@lru_cache(maxsize=4_096)
def _plain_name(name: str) -> str:
    return unquote(name).lower().lstrip("@")
