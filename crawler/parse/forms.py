"""Forms of pages: what a browser would send with their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlencode, urljoin

from crawler.arguments import Values, check, checked
from crawler.parse.encoding import encoded, encoding_named
from crawler.request import FORM, Request, RequestOptions

if TYPE_CHECKING:
    from turbohtml import Document, Element


class Form:
    """A form, and the `fields` that it sends, as names and values in their order. `base`: what its URL is relative to;
    `charset`: the encoding of the page, in which they are sent."""

    def __init__(self, document: Document, element: Element, base: str, charset: str = "") -> None:
        self._element = element
        self._base = base
        labels = [*_attribute(element, "accept-charset").replace(",", " ").split(), charset]
        self._encoding = next(filter(None, map(encoding_named, labels)), "UTF-8")
        self.fields = list(element.form_data())
        self._controls = []
        of_others = Counter[tuple[str, str]]()
        for control in element.select(_CONTROLS):
            if _attribute(control, "form") in ("", _attribute(element, "id")):
                self._controls.append(control)
            else:
                of_others.update(_fields_of(control))
        self.fields = _without(self.fields, of_others)
        for control in _beside(element):
            self._controls.append(control)
            self.fields += _fields_of(control)
        if name := _attribute(element, "id"):
            for control in document.select("input[form], select[form], textarea[form], button[form]"):
                if _attribute(control, "form") == name and control.closest("form") is None:
                    self._controls.append(control)
                    self.fields += _fields_of(control)

    def __repr__(self) -> str:
        return f"<Form {_attribute(self._element, 'action')!r} {list(dict(self.fields))}>"  # values may be secret

    @checked
    def fill(self, values: Mapping[str, Values] | None = None, **more: Values) -> Form:
        """Set fields, by their names: to a text or a number, or to several with a list. None and False leave a field
        out, and True checks a checkbox. All others keep the values of the page. Raises ValueError for a file, and for a
        name that the form lacks: append it to `fields` if it has to be sent."""
        known_names = {*dict(self.fields), *(_attribute(control, "name") for control in self._controls)} - {""}
        for name, value in {**(values or {}), **more}.items():
            if name not in known_names:
                there = ", ".join(sorted(known_names)) or "none"
                hint = "choose another form with page.form(CSS), or append it to form.fields"
                raise ValueError(f"the form has no field {name!r}, but {there}; {hint}")
            controls = [control for control in self._controls if _attribute(control, "name") == name]
            if any(_type(control) == "file" for control in controls):
                raise ValueError(f"{name!r} is a file: write a multipart/form-data body, and give it as body=")
            given: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
            if value is True:
                given = [control.field_value for control in controls] or ["on"]
            chosen = [one for one in given if one is not None and one is not False]
            names = [known for known, _ in self.fields]
            at = names.index(name) if name in names else len(names)
            after = [field for field in self.fields[at:] if field[0] != name]
            self.fields[at:] = [*((name, str(one)) for one in chosen), *after]
        return self

    @checked
    def submit(self, button: str = "", **options: Unpack[RequestOptions]) -> Request:
        """Return the request that a browser would send after a click on the `button` with this name, value or text: by
        default on the first one. `options`: of the `Request`. One with a password is private. Raises ValueError if there
        is no such button."""
        buttons = (control for control in self._controls if _may_submit(control))
        clicked = next((one for one in buttons if not button or button in _words_of(one)), None)
        if clicked is None and button:
            raise ValueError(f"the form has no button {button!r}")
        check("form.fields", self.fields, Sequence[tuple[str, str]])
        fields = list(self.fields)
        name = "" if clicked is None else _attribute(clicked, "name")
        if clicked is not None and _type(clicked) == "image":
            fields += [(f"{name}.{axis}" if name else axis, "0") for axis in "xy"]  # where it was clicked
        elif clicked is not None and name:
            fields.append((name, _attribute(clicked, "value")))
        action, method = (
            (clicked is not None and _attribute(clicked, f"form{name}")) or _attribute(self._element, name)
            for name in ("action", "method")
        )
        url = urljoin(self._base, action.strip())
        sent = urlencode([(self._encoded(name), self._encoded(value)) for name, value in fields])
        if method.upper() != "POST":
            return Request(f"{url.partition('#')[0].partition('?')[0]}?{sent}", **options)
        options["headers"] = {"Content-Type": FORM, **(options.get("headers") or {})}
        options.setdefault("private", any(_type(control) == "password" for control in self._controls))
        options["method"], options["body"] = "POST", sent
        return Request(url, **options)

    def _encoded(self, text: str) -> bytes:
        """`text` as browsers send it (HTML 4.10.21.8)."""
        return encoded(text.replace("\r\n", "\n").replace("\n", "\r\n"), self._encoding, "xmlcharrefreplace")


_CONTROLS = "input, select, textarea, button"


def _without(fields: list[tuple[str, str]], others: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """`fields` without as many of each as there are in `others`, which is used up."""
    kept = []
    for field in fields:
        if others[field] > 0:
            others[field] -= 1
        else:
            kept.append(field)
    return kept


def _beside(element: Element) -> Iterator[Element]:
    """The controls of a form that begins in a table, between its cells: they follow it in the tree, and are not in it (HTML
    13.2.6.4.9). Where it ends is not known, so all are its own that come before the next form."""
    parent = element.parent
    if parent is None or getattr(parent, "tag", "") not in ("table", "tbody", "thead", "tfoot", "tr"):
        return
    is_after = False
    for found in parent.select(f"form, {_CONTROLS}"):
        if found.tag == "form":
            if is_after:
                return
            is_after = found == element
        elif is_after and not _attribute(found, "form") and found.closest("form") is None:
            yield found


def _attribute(element: Element, name: str) -> str:
    value = element.attrs.get(name) or ""
    return value if isinstance(value, str) else " ".join(value)


def _type(control: Element) -> str:
    return _attribute(control, "type").lower()


def _fields_of(control: Element) -> list[tuple[str, str]]:
    name, kind, value = _attribute(control, "name"), _type(control), control.field_value
    is_left_out = kind in ("file", "submit", "image", "reset", "button") or control.tag == "button"
    if (
        is_left_out
        or not name
        or "disabled" in control.attrs
        or (kind in ("checkbox", "radio") and not control.checked)
    ):
        return []
    return [(name, one) for one in (value if isinstance(value, list) else [value]) if one is not None]


def _may_submit(control: Element) -> bool:
    kinds = ("submit", "image") if control.tag == "input" else ("", "submit")
    return control.tag in ("input", "button") and _type(control) in kinds and "disabled" not in control.attrs


def _words_of(button: Element) -> tuple[str, ...]:
    return _attribute(button, "name"), _attribute(button, "value"), button.text.strip()
