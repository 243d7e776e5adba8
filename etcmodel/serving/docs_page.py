"""Makes a page about a server's addresses, without scripts or network."""

import html
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; }}
td {{ padding: 0.2em 1em 0.2em 0; vertical-align: top; }}
pre {{ background: #eee; padding: 1em; white-space: pre-wrap; }}
</style>
</head>
<body>
<h1>{title}</h1>
<table>
{rows}
</table>
<h2>Example</h2>
<pre>{example}</pre>
<p>All inputs and outputs: <a href="/v1/models/{name}/metadata">metadata</a>.
The addresses for programs: <a href="/openapi.json">openapi.json</a>.</p>
</body>
</html>
"""


def make(schema: Mapping[str, Any], name: str, address: str, body: Any) -> str:
    """Returns a page of HTML.

    Args:
        schema: the server's OpenAPI schema.
        name: the name that the model is served under.
        address: address of the server, such as "http://127.0.0.1:8501/".
        body: the body of the example request, before `json.dumps`.
    """
    title, name = html.escape(name), urllib.parse.quote(name, safe="")
    rows = [
        f"<tr><td>{method.upper()}</td>"
        f"<td><code>{html.escape(path.replace('{model_name}', name))}</code>"
        f"</td><td>{html.escape(operation.get('description', ''))}</td></tr>"
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    # Escapes single quotes, which would end the string in a shell.
    content = json.dumps(body, ensure_ascii=False, indent=1)
    content = content.replace("'", "'\\''")
    command = (
        f"curl {address.rstrip('/')}/v1/models/{name}:predict -d '{content}'"
    )
    return _PAGE.format(
        title=title,
        name=name,
        rows="\n".join(rows),
        example=html.escape(command),
    )
