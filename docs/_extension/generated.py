"""Extend Sphinx by page parts that the code generates, and by links to files of the repository.

The directive `generated` inserts what the code itself says when the site is built:

    ```{generated} cli
    ```

Its argument names one of `PAGES`, functions that return markdown. They read the tables that the
program itself uses, so a page cannot differ from what the program does.

The pages of `models` and `experiments` belong to the site, where these folders are links. Pages
link to each other and to other files as they lie in the repository, so that its own viewers can
follow them; here these links are changed to those of the site.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.matching import patfilter

ROOT = Path(__file__).resolve().parent.parent.parent


def make_cli_page() -> str:
    """Return markdown that describes all verbs of the command line with their options, by group."""
    import tyro

    from an_control.cli.help import GROUPS, add_help_texts
    from an_control.cli.verbs import load_verb_class

    lines = []
    for group, verbs in GROUPS.items():
        lines += [f"## {group}", ""]
        for verb, about in verbs.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                parser = tyro.extras.get_parser(add_help_texts(load_verb_class(verb)), prog=verb)
            text = inspect.cleandoc(load_verb_class(verb).__doc__ or "")
            first, _, rest = text.partition("\n\n")
            lines += [
                f"### an-control {verb}",
                "",
                f"{_escape_markdown(about[0].upper() + about[1:])}.",
                "",
            ]
            lines += [_escape_markdown(" ".join(first.split())), ""]
            lines += ["```text", rest, "```", ""] if rest else []
            rows = [row for action in parser._actions if (row := _make_option_row(action))]
            lines += ["| option | what it does |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _make_option_row(action: Any) -> str:
    """Return the row of an option for a markdown table, or "" for `--help`.

    Args:
        action: The option, an argparse action.
    """
    if "--help" in action.option_strings:
        return ""
    values = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = f" {values}" if action.nargs != 0 and action.option_strings else ""
    names = ", ".join(f"`{one}{value}`" for one in action.option_strings) or f"`{values}`"
    text = (action.help or "").replace("%%", "%").strip()
    return f"| {names.replace('|', chr(92) + '|')} | {_escape_markdown(text)} |"


def make_json_page() -> str:
    """Return a markdown table of the keys in the files that the option ``--json`` writes."""
    from an_control.cli.help import JSON_KEYS

    lines = ["| verb | keys | what they are |", "|---|---|---|"]
    for verb, keys in JSON_KEYS.items():
        for names, text in keys.items():
            shown = ", ".join(f"`{name}`" for name in names.split(", "))
            lines.append(f"| `{verb}` | {shown} | {_escape_markdown(text)} |")
    return "\n".join(lines)


def make_parameters_page() -> str:
    """Return a markdown table of the policy node's parameters."""
    from an_control.ros.parameter_table import PARAMETERS, USE_SIM_TIME

    when = {"start": "at the start", "unconfigured": "until configured", "always": "at any time"}
    lines = ["| parameter | default | can be set | what it does |", "|---|---|---|---|"]
    for one in (*PARAMETERS.values(), USE_SIM_TIME):
        lines.append(
            f"| `{one.name}` | {_format_value(one.default)} | {when[one.when]} |"
            f" {_escape_markdown(one.description)} |"
        )
    for name, text in (
        ("sources.NAME.topic", "the topic of a source: announced rewiring"),
        ("channels.ID.source", "the source of a channel: announced rewiring"),
        ("channels.ID.field", "the field of a channel: announced rewiring"),
    ):
        lines.append(f"| `{name}` | the wiring's | at any time | {text} |")
    return "\n".join(lines)


def make_disturbances_page() -> str:
    """Return a markdown table of the disturbance settings."""
    from an_control.disturbance.settings import SETTINGS

    lines = [
        "| setting | word | default | what it does | allowed | disturbs |",
        "|---|---|---|---|---|---|",
    ]
    for one in SETTINGS:
        what = ", ".join(one.observations) if one.target == "readings" else one.target
        lines.append(
            f"| `{one.name}` | `{one.word}` | {one.default_as_plain_value} |"
            f" {_escape_markdown(one.help_with_unit)} |"
            f" {_escape_markdown(one.allowed_values_text)} | {what} |"
        )
    return "\n".join(lines)


def make_offers_page() -> str:
    """Return a markdown table of the optional attributes that an environment may offer."""
    from an_control.cli.help import OFFERS

    lines = ["| attribute of `env.unwrapped` | what it is |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| `{name}` | {_escape_markdown(text)} |" for name, text in OFFERS.items())]
    )


def make_schema_page(name: str) -> Callable[[], str]:
    """Return a function that describes the keys of a YAML format in markdown tables.

    Args:
        name: Name of the format, "wiring" or "simulation".
    """

    def make_tables() -> str:
        """Return markdown with one table of keys for each mapping of the format."""
        path = ROOT / f"config/schemas/{name}.schema.json"
        whole = json.loads(path.read_text(encoding="utf-8"))
        lines = []
        for place, entry in _find_mappings("", whole, whole):
            lines += [f"## {place or 'The file'}", "", entry.get("description", ""), ""]
            lines += ["| key | value | what it is |", "|---|---|---|"]
            for key, one in entry["properties"].items():
                one = _resolve_reference(one, whole)
                needed = ", needed" if key in entry.get("required", ()) else ""
                default = f"; default {_format_value(one['default'])}" if "default" in one else ""
                lines.append(
                    f"| `{key}` | {_describe_value_type(one, whole)}{needed} |"
                    f" {one.get('description', '')}{default} |"
                )
            lines.append("")
        return "\n".join(lines)

    return make_tables


def _find_mappings(
    place: str, entry: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping of a JSON schema that has named keys, with its place in the file.

    Args:
        place: Dotted place in the file, "" for the whole file.
        entry: The part of the schema that describes this place.
        whole: The whole schema, for references.
    """
    entry = _resolve_reference(entry, whole)
    for one in entry.get("oneOf", entry.get("anyOf", ())):
        yield from _find_mappings(place, one, whole)
    if "items" in entry and place.endswith(("command", "]")):
        return  # a list of what comes before it
    if "properties" in entry:
        yield place, entry
        for key, one in entry["properties"].items():
            yield from _find_mappings(f"{place}.{key}".lstrip("."), one, whole)
    if isinstance(entry.get("additionalProperties"), dict):
        name = entry.get("x-name", "NAME")
        yield from _find_mappings(f"{place}.{name}", entry["additionalProperties"], whole)


def _resolve_reference(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a schema, merged with the part that its `$ref` names; its own keys win.

    Args:
        entry: The part of the schema.
        whole: The whole schema.
    """
    if "$ref" not in entry:
        return dict(entry)
    found: Any = whole
    for part in entry["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return {**found, **{key: value for key, value in entry.items() if key != "$ref"}}


def _describe_value_type(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return a description of the values that a part of a schema allows, such as "number, 0 to 1".

    Args:
        entry: The part of the schema.
        whole: The whole schema, for references.
    """
    if "enum" in entry:
        return ", ".join(f"`{_format_plain(one)}`" for one in entry["enum"])
    if "const" in entry:
        return f"`{_format_plain(entry['const'])}`"
    several = entry.get("oneOf", entry.get("anyOf"))
    if several:
        kinds = [_describe_value_type(_resolve_reference(one, whole), whole) for one in several]
        return " or ".join(dict.fromkeys(kinds))
    kind = entry.get("type", "any")
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "true or false"}
    low, high = entry.get("minimum"), entry.get("maximum")
    text = {"number": "number", "integer": "whole number", **words}.get(kind, kind)
    if kind == "array" and "minItems" in entry and entry.get("minItems") == entry.get("maxItems"):
        text = f"list of {entry['minItems']}"
    bounds = (
        (f"{low:g} to {high:g}" if high is not None else f"{low:g} or more")
        if low is not None
        else ""
    )
    return f"{text}{f', {bounds}' if bounds else ''}"


def _format_plain(value: Any) -> str:
    """Return a value as text; booleans as in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_value(value: Any) -> str:
    """Return a value as markdown code, or "" for None and ""."""
    if value in ("", None):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{_format_plain(value)}`"


def _escape_markdown(text: str) -> str:
    """Return a text with markdown's special characters escaped, except between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        one if one.startswith("`") else re.sub(r"([\\*_<>\[\]~#|{}$])", r"\\\1", one)
        for one in parts
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli": make_cli_page,
    "json": make_json_page,
    "parameters": make_parameters_page,
    "disturbances": make_disturbances_page,
    "offers": make_offers_page,
    "wiring": make_schema_page("wiring"),
    "simulation": make_schema_page("simulation"),
}


class Generated(SphinxDirective):
    """Sphinx directive that is replaced by the markdown of a function in `PAGES`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the document nodes of the page part that the directive's argument names."""
        self.env.note_reread()  # what it is made from is not a page: read it at each build
        text = PAGES[self.arguments[0]]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


ATTRIBUTES: dict[str, list[str]] = {}
"""Docstrings of attributes before napoleon changes them: it takes words before a colon for a
type."""


def keep_attribute(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Remember an attribute's docstring for `restore_text` before napoleon changes it."""
    if what == "attribute":
        ATTRIBUTES[name] = list(lines)


def restore_text(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Escape each `*` in a docstring, and separate its indented blocks by empty lines.

    The docstring of an attribute is replaced by the text that `keep_attribute` remembered, since
    napoleon takes the words before a colon for a type.

    Args:
        app: The Sphinx application.
        what: Kind of the documented object, such as "attribute".
        name: Dotted name of the object.
        thing: The object.
        options: Options of the autodoc directive.
        lines: Lines of the docstring, changed in place.
    """
    new: list[str] = []
    for line in ATTRIBUTES.pop(name, lines):
        indented = line.startswith(" ") and new and new[-1].strip()
        if indented and not re.match(r"\s|[:*-]|\.\. |\d+\.", new[-1]) and new[-1][-2:] != "::":
            new.append("")
        parts = re.split(r"(``.*?``|`[^`]*`|\*\*\S)", line)
        new.append(
            "".join(one if one[:1] == "`" else re.sub(r"\\?\*", r"\\*", one) for one in parts)
        )
    lines[:] = new


LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")
OUTSIDE = ("models/", "experiments/")


def rewrite_links(app: Sphinx, name: str, content: list[str]) -> None:
    """Change a page's links to files of the repository into links of the site.

    A link to a folder is replaced by its text.

    Args:
        app: The Sphinx application.
        name: Name of the page.
        content: List of one text, the source of the page, which is replaced.
    """
    page = name if name.startswith(OUTSIDE) else f"docs/{name}"

    def rewrite_link(match: re.Match[str]) -> str:
        """Return the text that replaces one link."""
        picture, text, target, anchor = match.groups()
        if ":" in target:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        known = path.startswith(OUTSIDE) or path.startswith("docs/")
        if (ROOT / path).is_dir() or (path.endswith(".md") and not known):
            return text
        path = path.removeprefix("docs/") if known else os.path.relpath(ROOT / path, app.srcdir)
        path = os.path.relpath(path, os.path.dirname(name))
        return f"{picture}[{text}]({path}{anchor})"

    content[0] = LINK.sub(rewrite_link, content[0])
    if name == app.config.root_doc:
        content[0] = _remove_empty_patterns(content[0], set(app.env.found_docs))


def _remove_empty_patterns(text: str, pages: set[str]) -> str:
    """Return a page's text without the patterns in its tables of contents that match no more pages.

    Args:
        text: Source of the page.
        pages: Names of all pages.
    """
    lines = []
    pages -= {line for line in text.splitlines() if line in pages}
    for line in text.splitlines():
        if re.fullmatch(r"[a-z-]+/[\w/*-]*\*[\w/*-]*", line):
            matched = set(patfilter(pages, line))
            pages -= matched
            if not matched:
                continue
        lines.append(line)
    return "\n".join(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the event handlers with Sphinx."""
    app.add_directive("generated", Generated)
    app.connect("source-read", rewrite_links)
    app.connect("autodoc-process-docstring", keep_attribute, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", restore_text, priority=900)  # after it
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
