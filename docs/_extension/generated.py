"""What the site has beyond its pages: generated parts, and links to files of the repository.

The directive `generated` puts in what the code itself says when the site is built:

    ```{generated} cli
    ```

Its argument names one of `PAGES`, functions that return markdown. What they read is what the
program runs by, so a page cannot say anything else than the program does.

The pages of `models` and `experiments` belong to the site, where these folders are links. Pages
link to each other and to other files as they lie in the repository, so that its own viewers can
follow them; here these links are made those of the site.
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


def cli() -> str:
    """Return all verbs with their options, by group, as `an-control VERB --help` has them."""
    import tyro

    from an_control.cli.help import GROUPS, with_help_texts
    from an_control.cli.verbs import verb_class

    lines = []
    for group, verbs in GROUPS.items():
        lines += [f"## {group}", ""]
        for verb, about in verbs.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                parser = tyro.extras.get_parser(with_help_texts(verb_class(verb)), prog=verb)
            text = inspect.cleandoc(verb_class(verb).__doc__ or "")
            first, _, rest = text.partition("\n\n")
            lines += [
                f"### an-control {verb}",
                "",
                f"{_escaped(about[0].upper() + about[1:])}.",
                "",
            ]
            lines += [_escaped(" ".join(first.split())), ""]
            lines += ["```text", rest, "```", ""] if rest else []
            rows = [row for action in parser._actions if (row := _option(action))]
            lines += ["| option | what it does |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _option(action: Any) -> str:
    """Return the table's row of an option, or "" for `--help`."""
    if "--help" in action.option_strings:
        return ""
    values = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = f" {values}" if action.nargs != 0 and action.option_strings else ""
    names = ", ".join(f"`{one}{value}`" for one in action.option_strings) or f"`{values}`"
    text = (action.help or "").replace("%%", "%").strip()
    return f"| {names.replace('|', chr(92) + '|')} | {_escaped(text)} |"


def parameters() -> str:
    """Return the table of the policy node's parameters."""
    from an_control.ros.settings import PARAMETERS, USE_SIM_TIME

    when = {"start": "at the start", "unconfigured": "until configured", "always": "at any time"}
    lines = ["| parameter | default | can be set | what it does |", "|---|---|---|---|"]
    for one in (*PARAMETERS.values(), USE_SIM_TIME):
        lines.append(
            f"| `{one.name}` | {_value(one.default)} | {when[one.when]} |"
            f" {_escaped(one.description)} |"
        )
    for name, text in (
        ("sources.NAME.topic", "the topic of a source: announced rewiring"),
        ("channels.ID.source", "the source of a channel: announced rewiring"),
        ("channels.ID.field", "the field of a channel: announced rewiring"),
    ):
        lines.append(f"| `{name}` | the wiring's | at any time | {text} |")
    return "\n".join(lines)


def disturbances() -> str:
    """Return the table of the settings that disturb a robot."""
    from an_control.disturbance.settings import SETTINGS

    lines = [
        "| setting | word | default | what it does | allowed | disturbs |",
        "|---|---|---|---|---|---|",
    ]
    for one in SETTINGS:
        what = ", ".join(one.observations) if one.target == "readings" else one.target
        lines.append(
            f"| `{one.name}` | `{one.word}` | {one.plain} | {_escaped(one.meaning)} |"
            f" {_escaped(one.allowed)} | {what} |"
        )
    return "\n".join(lines)


def offers() -> str:
    """Return the attributes that an environment may offer."""
    from an_control.cli.help import OFFERS

    lines = ["| attribute of `env.unwrapped` | what it is |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| `{name}` | {_escaped(text)} |" for name, text in OFFERS.items())]
    )


def schema(name: str) -> Callable[[], str]:
    """Return a function that returns a YAML format's keys, a table for each kind of entry."""

    def tables() -> str:
        path = ROOT / f"config/schemas/{name}.schema.json"
        whole = json.loads(path.read_text(encoding="utf-8"))
        lines = []
        for place, entry in _mappings("", whole, whole):
            lines += [f"## {place or 'The file'}", "", entry.get("description", ""), ""]
            lines += ["| key | value | what it is |", "|---|---|---|"]
            for key, one in entry["properties"].items():
                one = _resolved(one, whole)
                needed = ", needed" if key in entry.get("required", ()) else ""
                default = f"; default {_value(one['default'])}" if "default" in one else ""
                lines.append(
                    f"| `{key}` | {_kind(one, whole)}{needed} |"
                    f" {one.get('description', '')}{default} |"
                )
            lines.append("")
        return "\n".join(lines)

    return tables


def _mappings(
    place: str, entry: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping with named keys, and where it stands in the file."""
    entry = _resolved(entry, whole)
    for one in entry.get("oneOf", entry.get("anyOf", ())):
        yield from _mappings(place, one, whole)
    if "items" in entry and place.endswith(("command", "]")):
        return  # a list of what comes before it
    if "properties" in entry:
        yield place, entry
        for key, one in entry["properties"].items():
            yield from _mappings(f"{place}.{key}".lstrip("."), one, whole)
    if isinstance(entry.get("additionalProperties"), dict):
        name = entry.get("x-name", "NAME")
        yield from _mappings(f"{place}.{name}", entry["additionalProperties"], whole)


def _resolved(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with what its `$ref` names; its own keys come first."""
    if "$ref" not in entry:
        return dict(entry)
    found: Any = whole
    for part in entry["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return {**found, **{key: value for key, value in entry.items() if key != "$ref"}}


def _kind(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return what a value may be, in words."""
    if "enum" in entry:
        return ", ".join(f"`{_plain(one)}`" for one in entry["enum"])
    if "const" in entry:
        return f"`{_plain(entry['const'])}`"
    several = entry.get("oneOf", entry.get("anyOf"))
    if several:
        kinds = [_kind(_resolved(one, whole), whole) for one in several]
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


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(value: Any) -> str:
    if value in ("", None):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{_plain(value)}`"


def _escaped(text: str) -> str:
    """Return plain text as markdown that shows it as it is, code between backticks aside."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        one if one.startswith("`") else re.sub(r"([\\*_<>\[\]~#|{}$])", r"\\\1", one)
        for one in parts
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli": cli,
    "parameters": parameters,
    "disturbances": disturbances,
    "offers": offers,
    "wiring": schema("wiring"),
    "simulation": schema("simulation"),
}


class Generated(SphinxDirective):
    """Put what a function of `PAGES` returns in the directive's place."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the page that the argument names."""
        self.env.note_reread()  # what it is made from is no page: read it at each build
        text = PAGES[self.arguments[0]]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


ATTRIBUTES: dict[str, list[str]] = {}
"""Docstrings of attributes before napoleon, which takes what stands before a colon for a type."""


def keep_attribute(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Remember an attribute's docstring for `as_written`."""
    if what == "attribute":
        ATTRIBUTES[name] = list(lines)


def as_written(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Let a docstring's `*` be a star, and an indented part of it a part of its own."""
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


def site_links(app: Sphinx, name: str, content: list[str]) -> None:
    """Turn links to files of the repository into those of the site; to a folder, into its name."""
    page = name if name.startswith(OUTSIDE) else f"docs/{name}"

    def link(match: re.Match[str]) -> str:
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

    content[0] = LINK.sub(link, content[0])
    if name == app.config.root_doc:
        content[0] = _without_empty_patterns(content[0], set(app.env.found_docs))


def _without_empty_patterns(text: str, pages: set[str]) -> str:
    """Return the text without the patterns of its toctrees that no further page matches."""
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
    """Register the directive."""
    app.add_directive("generated", Generated)
    app.connect("source-read", site_links)
    app.connect("autodoc-process-docstring", keep_attribute, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", as_written, priority=900)  # after it
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
