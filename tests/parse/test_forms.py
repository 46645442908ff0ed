"""Forms as browsers read and send them."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qsl

import pytest

from crawler import Request
from crawler.testing import page

BODY = """<base href="/shop/"><form id=f action="find?x=1" method={method}>
<input name=q value=tea><input type=hidden name=token value=t><input name=off disabled value=1>
<select name=size><option value=s>small<option value=m selected>medium</select>
<select name=tags multiple><option selected>a<option>b<option selected>c</select>
<textarea name=note>
two
lines</textarea>
<input type=checkbox name=new checked><input type=checkbox name=old value=yes>
<input type=radio name=by value=price><input type=radio name=by value=name checked>
<input type=file name=photo><button>Go</button><button name=act value=save formaction=/save>Save</button>
<fieldset disabled><input name=never value=1></fieldset></form><input form=f name=outside value=o>"""
VALUES = [
    ("q", "tea"), ("token", "t"), ("size", "m"), ("tags", "a"), ("tags", "c"), ("note", "two\nlines"),
    ("new", "on"), ("by", "name"), ("outside", "o"),
]  # fmt: skip


def form(method: str = "post", **more: Any) -> Any:
    return page("https://a.test/list", BODY.format(method=method), **more).form("#f")


def sent(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.request.body.decode(), keep_blank_values=True)


def test_a_form_is_sent_with_the_values_of_the_page() -> None:
    request = form().submit()
    assert (request.url, request.request.method) == ("https://a.test/shop/find?x=1", "POST")
    assert sent(request) == [(name, value.replace("\n", "\r\n")) for name, value in VALUES]
    assert request.request.headers == (("Content-Type", "application/x-www-form-urlencoded"),)
    assert not request.request.is_private


def test_a_form_by_get_is_a_url() -> None:
    request = form("get").fill(q="a b", note=None, tags=["b"]).submit()
    assert request.request.method == "GET"
    assert request.key == ""
    assert request.url.startswith("https://a.test/shop/find?q=a+b&token=t&size=m&tags=b&new=on")


def test_fields_are_filled_by_name() -> None:
    filled = form().fill({"note": None}, q=["x", "y"], new=False, old=True, size="s")
    assert filled.fields == [
        ("q", "x"), ("q", "y"), ("token", "t"), ("size", "s"), ("tags", "a"), ("tags", "c"),
        ("by", "name"), ("outside", "o"), ("old", "yes"),
    ]  # fmt: skip


def test_a_field_that_the_form_lacks_is_refused_with_the_names_that_it_has() -> None:
    found = page("https://a.test/", "<form method=post><input name=q><input type=checkbox name=new></form>").form()
    with pytest.raises(ValueError, match=r"no field 'username', but new, q; .*page\.form\(CSS\).*form\.fields"):
        found.fill(q="tea", username="ada")
    found.fields.append(("user[id]", "7"))
    assert sent(found.fill({"user[id]": 8}, new=True).submit())[1:] == [("user[id]", "8"), ("new", "on")]


def test_a_button_is_clicked() -> None:
    for name in ("act", "save", "Save"):
        request = form().submit(name)
        assert request.url == "https://a.test/save"
        assert sent(request)[-1] == ("act", "save")
    with pytest.raises(ValueError, match="no button 'Send'"):
        form().submit("Send")


@pytest.mark.parametrize(("field", "said"), [(("a", 5), "has to be text, not int"), (("a",), "pair")])
def test_a_field_that_cannot_be_sent_is_named(field: Any, said: str) -> None:
    found = form()
    found.fields.append(field)
    with pytest.raises(TypeError, match=rf"form.fields\[\d+\].*{said}"):
        found.submit()


def test_a_control_belongs_to_the_form_that_it_names() -> None:
    body = "<form method=post id=f><input name=a value=1><input name=b form=g value=2></form><form id=g></form>"
    assert page("https://a.test/", body).form("#f").fields == [("a", "1")]


def test_a_click_on_an_image_has_a_place() -> None:
    body = "<form method=post><input name=a value=1><input type=image name=go src=x></form>"
    assert sent(page("https://a.test/", body).form().submit()) == [("a", "1"), ("go.x", "0"), ("go.y", "0")]


def test_a_file_and_a_form_that_is_missing_are_refused() -> None:
    with pytest.raises(ValueError, match="'photo' is a file"):
        form().fill(photo="x")
    with pytest.raises(ValueError, match="no form"):
        page("https://a.test/", "<p>").form()


@pytest.mark.parametrize(
    ("charset", "accepted", "expected"),
    [("utf-16le", "", "%C3%A9"), ("shift_jis", "", "%26%23233%3B"), ("utf-8", "x-none iso-8859-1", "%E9")],
)
def test_a_form_is_sent_in_the_encoding_that_browsers_choose(charset: str, accepted: str, expected: str) -> None:
    """No document is sent in UTF-16, and a form may name its encodings."""
    body = f"<form method=post accept-charset='{accepted}'><input name=q>".encode(charset)
    found = page("https://a.test/", body, headers={"Content-Type": f"text/html; charset={charset}"}).form()
    assert found.fill(q="\xe9").submit().request.body == b"q=" + expected.encode()


def test_a_form_is_sent_in_the_encoding_of_its_page() -> None:
    body = "<meta charset=windows-1252><form method=post><input name=q value=\xe9>".encode("cp1252")
    found = page("https://a.test/", body, headers={"Content-Type": "text/html"}).form().fill(q="\xe9\u2192")
    assert found.submit().request.body == b"q=%E9%26%238594%3B"


def test_a_form_with_a_password_is_private() -> None:
    found = page("https://a.test/", "<form method=post><input type=password name=p>").form()
    assert found.fill(p="x").submit().request.is_private


def test_zero_is_a_value_and_none_and_false_are_not() -> None:
    filled = page(
        "https://a.test/", "<form><input name=from><input name=to><input name=ids><input name=off></form>"
    ).form()
    filled.fill({"from": 0, "to": 0.0, "ids": [0, None, False, 1], "off": False})
    assert filled.fields == [("from", "0"), ("to", "0.0"), ("ids", "0"), ("ids", "1")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<tr><td><input name=a value=1><tr><td><button name=go value=1>Go</button></form>", [("a", "1"), ("go", "1")]),
        ("<tr><td><input name=a value=1></form><form><tr><td><input name=b value=2></form>", [("a", "1")]),
        ("<tr><td><input name=a value=1><input form=g name=b value=2></form>", [("a", "1")]),
    ],
)
def test_a_form_in_a_table_has_the_controls_in_its_cells(body: str, expected: list[tuple[str, str]]) -> None:
    """The tree has them beside the form, and browsers send them."""
    found = page("https://a.test/", f"<table><tr><td><input name=x></tr><form method=post>{body}</table>").form()
    assert sent(found.submit()) == expected


def test_a_control_of_another_form_does_not_hide_an_own_one() -> None:
    body = "<form id=f><input name=q value=1><input form=g name=q value=1></form><form id=g></form>"
    assert page("https://a.test/", body).form().fields == [("q", "1")]


def test_a_form_with_many_controls_of_others_is_read_in_no_time() -> None:
    body = "<form>" + "".join(f"<input form=g name=n{number} value=1>" for number in range(5_000)) + "</form>"
    found, began = page("https://a.test/", body), time.process_time()
    assert found.form().fields == []
    assert time.process_time() - began < 2.0
