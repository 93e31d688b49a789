"""The API as one plain page, made from its OpenAPI description. Swagger's own page would come from the internet."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; text-transform: capitalize; }
article { border-top: 1px solid #8884; padding: .75rem 0; }
h3 { margin: 0; font: 600 .95rem ui-monospace, monospace; overflow-wrap: anywhere; }
h3 b { display: inline-block; min-width: 4.5rem; color: #0a7d68; }
p { margin: .25rem 0; }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .1rem 1rem; margin: .4rem 0; font-size: .9rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: .85rem ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; background: #8881; }
"""
SOCKET = """
<h2>WebSocket</h2><article><h3><b>WS</b>/v1/stream?model=NAME</h3>
<p>Binary messages are frames: npy uint8 (H, W, 3), PNG or JPEG. The first begins the episode and is answered
<code>{"step": 0, "progress": 0.0}</code>, each next one <code>{"step", "reward", "progress"}</code>. The text message
<code>reset</code> makes the next frame a first one. An error is <code>{"error": {"code", "message"}}</code>, then the
socket closes.</p></article>
"""


def listing(api: dict[str, Any]) -> str:
    """OpenAPI -> HTML without scripts."""
    groups: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["other"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(items)}" for tag, items in groups.items())
    schemas = "".join(_schema(name, schema) for name, schema in api["components"]["schemas"].items())
    title = escape(api["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/docs.css">'
        f"</head><body><h1>{title} API</h1><p>{escape(api['info']['description'])} The same for programs: "
        f'<a href="/openapi.json">openapi.json</a>.</p>{sections}{SOCKET}<h2>Answers</h2>{schemas}</body></html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], f"{parameter['in']}. {parameter.get('description', '')}")
        for parameter in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {})
    rows += [("body", ", ".join(body))] if body else []
    for status, answer in operation["responses"].items():
        rows.append((status, f"{answer.get('description', '')} {_answer(answer)}"))
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    about = escape(operation.get("description", ""))
    return f"<article><h3><b>{method.upper()}</b>{escape(path)}</h3><p>{about}</p><dl>{listed}</dl></article>"


def _answer(answer: dict[str, Any]) -> str:
    kinds = []
    for kind, content in answer.get("content", {}).items():
        reference = content.get("schema", {}).get("$ref", "")
        kinds.append(reference.rpartition("/")[2] or kind)
    return ", ".join(kinds)


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<dt>{escape(field)}</dt><dd>{escape(_kind(value))} {escape(value.get('description', ''))}</dd>"
        for field, value in schema.get("properties", {}).items()
    )
    return f"<article><h3>{escape(name)}</h3><dl>{rows}</dl></article>"


def _kind(value: dict[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(_kind(choice) for choice in value["anyOf"])
    if "items" in value:
        return f"list of {_kind(value['items'])}"
    return str(value.get("$ref", value.get("type", "any"))).rpartition("/")[2]
