import json
import os
import tempfile
import unittest

import numpy as np
import pytest

from etcmodel.feature_utils.text import tokenizers
from etcmodel.inspection import map_page
from etcmodel.inspection import map_records
from testing import attention_maps
from testing import pages
from testing.tasks import write_test_vocab

# Waits until the page shows the latest choice.
_SETTLED = """
const done = arguments[0];
etcMap.view.whenBuilt.then(() => etcMap.update()).then(done);
"""
# Returns the text of each part of the document, and its shade or null.
_SHADES = """
return [...document.querySelectorAll(".etc-part")].map((part) => [
  part.textContent,
  part.classList.contains("etc-shaded")
    ? Number(part.style.getPropertyValue("--shade")) : null,
]);
"""


class MakePageTest(unittest.TestCase):
    def test_texts_are_data(self):
        page = map_page.make_page(attention_maps.make_map())
        self.assertIn("<title>toy: &lt;i&gt;1&lt;/i&gt;</title>", page)
        self.assertEqual(2, page.count("</script>"))
        _, _, rest = page.partition('id="data">')
        data = json.loads(rest.partition("</script>")[0])
        self.assertEqual(["<b>", "jan"], data["texts"])

    def test_one_file_in_a_frame(self):
        found = attention_maps.make_map()
        page = map_page.make_page(found)
        self.assertNotRegex(page, r"(src|href)=|url\(|https?:|\son\w+=")
        self.assertIn("default-src &#x27;none&#x27;", page)
        frame = map_page.make_frame(found, height=300)
        self.assertTrue(frame.startswith('<iframe srcdoc="&lt;!DOCTYPE html'))
        self.assertIn("height: 300px", frame)


class BrowserTest(unittest.TestCase):
    """Opens pages in Chromium."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = pages.open_browser()
        cls.addClassCleanup(cls.browser.quit)

    def open(self, attention_map, as_frame=False):
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, "map.html")
        map_page.write_page(attention_map, path)
        if as_frame:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(map_page.make_frame(attention_map))
        self.browser.get(f"file://{path}")
        if as_frame:
            self.browser.switch_to.frame(0)
        self.settle()

    def settle(self):
        self.browser.execute_async_script(_SETTLED)

    def click(self, selector, index=0):
        self.browser.find_elements("css selector", selector)[index].click()
        self.settle()

    def text_of(self, selector):
        return self.browser.find_element("css selector", selector).text

    def choose(self, name, option):
        self.browser.execute_script(
            "const list = document.getElementById(arguments[0]);"
            "list.value = [...list.options].find("
            "(x) => x.text === arguments[1]).value;"
            "list.dispatchEvent(new Event('change'));",
            name,
            option,
        )
        self.settle()

    def tearDown(self):
        problems = [x["message"] for x in self.browser.get_log("browser")]
        self.assertEqual([], problems)
        super().tearDown()

    def test_everything_is_shown(self):
        self.open(attention_maps.make_map())
        self.assertEqual("toy: <i>1</i>", self.text_of("#title"))
        self.assertIn("</script>", self.text_of("#answers"))
        self.assertIn("words", self.text_of("#document"))
        self.assertIn("<b> jan", self.text_of("#document"))
        self.assertEqual("query 0", self.text_of(".map-margin"))
        self.assertIn("2 tokens", self.text_of("#cuts-title"))
        self.assertEqual("jan", self.text_of(".etc-predicted"))
        # The answer is chosen first. Averaged over layers, it attends most to
        # "<b>".
        self.assertEqual("Whom “jan” reads", self.text_of("#chosen"))
        self.assertIn("linked with query 0 (topic)", self.text_of("#details"))
        self.assertRegex(
            self.text_of("#bars"), r"^<b> jan\s50 %\s◆ query 0\s6.3 %\s"
        )
        self.assertIn("All others together: 44 %", self.text_of("#bars"))

    def test_layers_heads_and_directions(self):
        self.open(attention_maps.make_map())
        self.choose("layer", "Layer 1")
        self.choose("head", "2")
        self.click(".etc-part", 1)
        self.assertEqual("Whom “<b>” reads", self.text_of("#chosen"))
        # "<b>" attends to the global token with 0.75 and to "jan" with 0.25,
        # whose shade is the square root of 0.25 / 0.75.
        shades = self.browser.execute_script(_SHADES)
        self.assertEqual(["words", "<b> ", "jan"], [x for x, _ in shades])
        self.assertAlmostEqual(0.577, shades[2][1], delta=0.005)
        self.assertIsNone(shades[1][1])
        chip = self.browser.find_element("css selector", ".map-chip")
        self.assertIn("75 %", chip.get_attribute("title"))
        self.click("[value=readers]")
        # In head 2, "jan" attends to "<b>" with 1, the global token with 0.5.
        self.assertRegex(
            self.text_of("#bars"), r"^<b> jan\s100 %\s◆ query 0\s50 %\s"
        )
        self.click("[value=reads]")
        self.click(".map-chip")
        self.assertRegex(self.text_of("#bars"), r"^<b> jan\s50 %\s")

    def test_keyboard(self):
        self.open(attention_maps.make_map())
        parts = self.browser.find_elements("css selector", ".etc-part")
        parts[2].send_keys("\ue012")  # The left arrow.
        self.browser.switch_to.active_element.send_keys("\ue007")  # Enter.
        self.settle()
        self.assertEqual("Whom “<b>” reads", self.text_of("#chosen"))

    def test_segments_and_memories(self):
        self.open(attention_maps.make_segments_map())
        self.assertEqual("Whom “Segment 1” reads", self.text_of("#chosen"))
        self.assertRegex(
            self.text_of("#memory-bars"), r"^Jan\s25 %\sBrno\s6.3 %$"
        )
        self.click("#memory-bars button", 1)
        # Segments come after the tokens that read the memory.
        self.assertEqual("Who reads “Brno”", self.text_of("#chosen"))
        self.assertRegex(
            self.text_of("#bars"), r"^jan\s50 %\sSegment 2\s50 %\sSegment 1\s6"
        )

    def test_focus_follows_a_choice_in_the_list(self):
        self.open(attention_maps.make_map())
        # The first bar is a token of the text, the second a global token.
        for index, expected in ((0, "<b> "), (1, "query 0")):
            self.click("#bars button", index)
            focused = self.browser.switch_to.active_element
            self.assertEqual(expected, focused.get_property("textContent"))
            self.assertEqual("true", focused.get_attribute("aria-pressed"))
            self.assertEqual("0", focused.get_attribute("tabindex"))
            pressed = self.browser.find_elements(
                "css selector", "#document [aria-pressed=true]"
            )
            self.assertEqual([focused], pressed)
            self.click(".etc-part", 2)
        self.open(attention_maps.make_segments_map())
        self.click("#memory-bars button", 1)
        self.assertEqual(
            "Who reads “Brno”", self.browser.switch_to.active_element.text
        )

    def test_in_a_notebook(self):
        self.open(attention_maps.make_map(), as_frame=True)
        self.assertEqual("Whom “jan” reads", self.text_of("#chosen"))

    def test_attention_in_numpy(self):
        """Compares the shades of a custom layout with NumPy."""
        vocab_file = write_test_vocab(tempfile.mkdtemp(), attention_maps.WORDS)
        example = attention_maps.make_example(
            tokenizers.WordpieceTokenizer(vocab_file), num_layers=1
        )
        found = map_records.map_layout(
            *example[:2],
            attention_maps.SPEC,
            *example[2:],
            title="mine",
            summary=(),
            answers=(),
        )
        # [tokens, tokens]: 6 global tokens, 2 of padding, and the text.
        expected = attention_maps.attention_of_first_layer(example).mean(axis=0)
        self.open(found)
        for token in (0, 8, 16):
            part = f'.etc-part[data-index="{token + 1 + (token > 1)}"]'
            self.click(part)
            shades = [
                shade
                for text, shade in self.browser.execute_script(_SHADES)
                if text not in ("topics", "story")
            ]
            row = expected[8 + token]
            most = row.max()
            for key, shade in enumerate(shades):
                value = row[8 + key]
                if shade is not None:
                    np.testing.assert_allclose(
                        np.sqrt(value / most), shade, atol=0.01
                    )
                else:
                    self.assertLess(value, 0.005)


if __name__ == "__main__":
    pytest.main([__file__])
