"""The tables `[[extract]]`: what data is extracted from pages without code."""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from crawler.errors import UserError
from crawler.scope.extract_rules import (
    ExtractRule,
    FieldRule,
    FieldType,
    PageFact,
    check_field,
    check_match,
    check_name,
    check_path,
    check_regex,
    check_selector,
)
from crawler.settings.table import Table


class FieldTable(Table, frozen=True, kw_only=True, omit_defaults=True):
    """A field of an item of the `[[extract]]` before it, also written `NAME = { KEY = VALUE }` in `[extract.fields]`."""

    css: Annotated[
        str,
        Meta(extra={"check": check_selector}),
        "CSS selector of the elements whose text is the value; with `each`, within its element. With `each` and no source, "
        "the value is the text of the element itself.",
    ] = ""
    attr: Annotated[
        str, "Attribute that is the value, instead of the text. With `each` and no `css`, that of its element."
    ] = ""
    json_ld: Annotated[
        str,
        Meta(extra={"check": check_path}),
        "Path of the value in the JSON-LD of the page: a type and keys, such as `Product.offers.price`. Lists on the way "
        "are searched.",
    ] = ""
    page: Annotated[PageFact | None, "Something that is known of the page."] = None
    value: Annotated[str, "This text, the same for all items."] = ""
    regex: Annotated[
        str,
        Meta(extra={"check": check_regex}),
        "Regular expression (PCRE2). The part of the value that it matches is used, its first group if it has one. "
        "Without another source, it is searched in the source text of the page.",
    ] = ""
    type: Annotated[
        FieldType,
        "What the value must be. `decimal`: a number such as 1,234.50 with any currency around it; `decimal_comma`: one "
        "such as 1.234,50; `url`: resolved to an absolute URL; `date`: written as in ISO 8601.",
    ] = "text"
    list: Annotated[bool, "Whether to take all values, as a list, instead of the first."] = False
    required: Annotated[bool, "Whether an item without this value is rejected."] = False

    def rule(self, name: str) -> FieldRule:
        """The rule for the field `name`."""
        return FieldRule(name, **asdict(self))


class ExtractTable(Table, frozen=True, kw_only=True):
    """Items of one data set, extracted without code: `[[extract]]`. See docs/how-to/extract-data.md."""

    name: Annotated[str, Meta(examples=["products"], extra={"check": check_name}), "Data set of the items."]
    match: Annotated[
        str,
        Meta(examples=["/product/"], extra={"check": check_match}),
        "Regular expression that is searched in the URL of a page. Empty: all pages.",
    ] = ""
    content_type: Annotated[str, "Media type of the pages, such as `text/html`, or `text/*`. Empty: any."] = "text/html"
    each: Annotated[
        str,
        Meta(examples=["li.product"], extra={"check": check_selector}),
        "CSS selector of the elements that are an item each. Empty: the page is one item.",
    ] = ""
    fields: Annotated[
        dict[str, FieldTable],
        Meta(examples=[{"title": {"css": "h1", "required": True}}]),
        "Fields of an item, by name.",
    ]

    def __post_init__(self) -> None:
        if not self.fields:
            raise UserError("`fields` needs at least one field")
        for name, field in self.fields.items():
            try:
                check_field(field.rule(name), bool(self.each))
            except UserError as error:
                raise UserError(f"fields.{name}: {error}") from error

    def rule(self) -> ExtractRule:
        """The rule of this table."""
        fields = tuple(field.rule(name) for name, field in self.fields.items())
        return ExtractRule(self.name, fields, self.match, self.content_type.lower(), self.each)
