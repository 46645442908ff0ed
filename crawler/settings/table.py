"""The base class of all tables of settings, and the types of numbers that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from crawler.errors import UserError
from frontier.errors import BadInput

NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]

LOADED = "code is loaded when a replica starts"
"""Why a change of a setting that names code needs a restart."""

T = TypeVar("T")


class Table(BaseModel):
    """A table of the TOML file. `restart`: why a change of its settings needs a restart of the replicas; empty if it does
    not."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    restart: ClassVar[str] = ""

    @classmethod
    def waits_because(cls, key: str) -> str:
        """Why a change of the setting `key` needs a restart of the replicas, or "" if running replicas apply it."""
        extra = cls.model_fields[key].json_schema_extra
        return str(extra["restart"]) if isinstance(extra, dict) else cls.restart

    @field_validator("*", mode="before")
    @classmethod
    def _is_not_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would accept `true` for a number, as 1."""
        items = value if isinstance(value, (list, tuple)) else (value,)
        if (
            any(isinstance(item, bool) for item in items)
            and cls.model_fields[str(info.field_name)].annotation is not bool
        ):
            raise ValueError("must not be true or false")
        return value


def needs_restart(why: str) -> dict[str, JsonValue]:
    """Marks a setting whose change needs a restart, with the reason."""
    return {"restart": why}


def usable(value: T, build: Callable[[], object]) -> T:
    """Return `value` if `build` can use it. Raises ValueError with the message of its error otherwise."""
    try:
        build()
    except (UserError, BadInput) as error:
        raise ValueError(error) from error
    return value
