import html
import json
import re
import shlex
import unittest

from etcmodel.serving import docs_page

_SCHEMA = {
    "paths": {
        "/v1/models/{model_name}:predict": {
            "post": {"description": "Answers <records>."}
        },
        "/healthz": {"get": {}},
    }
}


class DocsPageTest(unittest.TestCase):
    def test_page(self):
        body = {"instances": [{"text": "Jan's <b>café</b>"}]}
        page = docs_page.make(_SCHEMA, "mine", "http://here:1/", body)
        for part in (
            "POST</td><td><code>/v1/models/mine:predict</code>",
            "Answers &lt;records&gt;.",
            "GET</td><td><code>/healthz</code>",
        ):
            self.assertIn(part, page)
        # It needs no scripts and no network.
        self.assertNotRegex(page, r"<script|src=|href=.http|@import|url\(")
        (example,) = re.findall("(?s)<pre>(.*)</pre>", page)
        # Splits the command as a shell does.
        command = shlex.split(html.unescape(example))
        self.assertEqual(
            ["curl", "http://here:1/v1/models/mine:predict", "-d"], command[:3]
        )
        self.assertEqual(body, json.loads(command[3]))

    def test_any_name_of_a_model(self):
        """The command has one address, encoded, whatever the name is."""
        page = docs_page.make(_SCHEMA, "Jan's <new>", "http://here:1/", {})
        (example,) = re.findall("(?s)<pre>(.*)</pre>", page)
        path = "/v1/models/Jan%27s%20%3Cnew%3E"
        self.assertEqual(
            ["curl", f"http://here:1{path}:predict", "-d", "{}"],
            shlex.split(html.unescape(example)),
        )
        self.assertIn(f'<a href="{path}/metadata">', page)
        self.assertIn(f"<code>{path}:predict</code>", page)


if __name__ == "__main__":
    unittest.main()
