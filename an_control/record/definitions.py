"""Make message definitions for MCAP files from the message classes that are installed."""

from __future__ import annotations

from functools import cache

from an_control.wiring.messages import FieldType, import_message_class, list_field_types

_NAMES = {"double": "float64", "float": "float32", "boolean": "bool", "octet": "byte"}
_LINE = "=" * 80


@cache
def format_message_definition(type_: str) -> str:
    """Return the text that defines a message type and all types in it, as MCAP files hold it.

    Args:
        type_: Name of the message type, such as "sensor_msgs/msg/JointState".

    Raises:
        LookupError: The type is not installed.
    """
    parts: list[str] = []
    left, seen = [type_], {type_}
    while left:
        name = left.pop(0)
        lines = []
        for field, kind in list_field_types(import_message_class(name)).items():
            lines.append(f"{_format_field_type(kind)} {field}")
            if kind.message_type and kind.message_type not in seen:
                seen.add(kind.message_type)
                left.append(kind.message_type)
        head = [_LINE, f"MSG: {name.replace('/msg/', '/')}"] if parts else []
        parts.append("\n".join([*head, *lines]))
    return "\n".join(parts) + "\n"


def _format_field_type(kind: FieldType) -> str:
    """Return a field's type as a message definition writes it, such as "float64[3]"."""
    base = kind.base.replace("/msg/", "/")
    if base.startswith(("string<", "wstring<")):
        base = base.replace("<", "<=").rstrip(">")
    base = _NAMES.get(base, base)
    if not kind.array:
        return base
    if kind.size is None:
        return f"{base}[]"
    return f"{base}[{'' if kind.fixed else '<='}{kind.size}]"
