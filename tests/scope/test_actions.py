"""What links do, by the way in which applications write them."""

from __future__ import annotations

import pytest

from crawler.scope.actions import action_of, comes_last, is_login


@pytest.mark.parametrize(
    ("action", "paths"),
    [
        (
            "logout",
            "/logout /logout.php /user/logout /accounts/sign_out /wp-login.php?action=logout&_wpnonce=1 /?q=user/logout "
            "/customer/account/logoutSuccess/../logout/ /my-account/customer-logout/ /index.php/Special:UserLogout "
            "/index.php?title=Special:UserLogout&returnto=A /issue1?@action=logout /issue1?%40action=logout "
            "/ucp.php?mode=logout&sid=3 /index.php?option=com_users&task=user.logout /index.php?route=account/logout "
            "/doLogout /user/performLogout.do /logoutUser /session/end /sessions/destroy /connect/endsession "
            "/abmelden /d%C3%A9connexion /%D0%B2%D1%8B%D1%85%D0%BE%D0%B4",
        ),
        (
            "edit",
            "/node/1/edit /w/index.php?title=A&action=edit /doku.php?id=a&do=edit /a?action=approve "
            "/wp-admin/comment.php?action=approvecomment&c=1 /update.php?action=install-plugin&plugin=a "
            "/plugins.php?_wpnonce=5 /forum?do=markread&sesskey=4 /a?authenticity_token=b",
        ),
        (
            "delete",
            "/node/1/delete /wp-admin/post.php?post=1&action=trash /cgi?op=delete&id=4 /items/delete/7 "
            "/del.php?id=4 /post/del/4 /a?del=4 /a?action=del /wp-admin/comment.php?c=1&action=trashcomment&_wpnonce=1",
        ),
        ("cart", "/?add-to-cart=5 /cart/add/5 /checkout/cart/add/uenc/x/product/5/ /wishlist/add/3 /add_to_cart/4"),
        ("unsubscribe", "/unsubscribe?u=3 /newsletter/unsubscribe /list?unsubscribe=a /user/cancel-account"),
    ],
)
def test_links_that_do_things_are_recognised(action: str, paths: str) -> None:
    assert {path: action_of(f"https://a.test{path}") for path in paths.split()} == dict.fromkeys(paths.split(), action)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/login",
        "/blog/how-to-edit-photos",
        "/docs/delete-statement.html",
        "/docs/edit",
        "/docs/commands/delete",
        "/docs/git/edit.html",
        "/es/casa/del",
        "/docs/cli/install",
        "/edit/how/to/draw/index.html",
        "/search?q=delete",
        "/a?page=2&sort=new",
        "/store/updates?mode=list",
        "/a?do=show",
        "/cart",
    ],
)
def test_pages_about_such_things_are_left_alone(path: str) -> None:
    assert action_of(f"https://a.test{path}") is None
    assert not comes_last(path.partition("?")[2])


@pytest.mark.parametrize(
    "query", ["title=A&action=history", "replytocom=4", "title=A&oldid=5", "do=diff&id=a", "print=1"]
)
def test_views_of_other_pages_come_last(query: str) -> None:
    assert comes_last(query)


def test_pages_for_logging_in_are_recognised() -> None:
    paths = [
        "/login",
        "/accounts/login/?next=/a",
        "/wp-login.php?reauth=1",
        "/users/sign_in",
        "/de/anmelden.html",
        "/auth/realms/x",
    ]
    assert [path for path in paths if not is_login(f"https://a.test{path}")] == []
    others = ["/", "/blog/login-with-a-key", "/authors", "/logs", "/signs/in-print", "/?next=/login"]
    assert [path for path in others if is_login(f"https://a.test{path}")] == []
