import json
import os
import re
import tempfile
import urllib.request

import tensorflow as tf
from absl.testing import parameterized
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from etcmodel.errors import UserError
from etcmodel.pipeline.spec import load
from etcmodel.serving import page
from etcmodel.tasks import registry
from testing import pages

_TEXT = (
    "# Jan Novak\nJan Novak is a cook. He lives in Krakow.\n\n"
    "Krakow is a city in Poland. It is ä < b."
)
_SENTENCES = [
    "Jan Novak is a cook.",
    "He lives in Krakow.",
    "Krakow is a city in Poland.",
    "It is ä < b.",
]


def one_line(text):
    return " ".join(text.split())


def percent(value):
    return f"{100 * value:.{int(value < 0.01)}f} %"


class ToTextTest(parameterized.TestCase):
    @parameterized.parameters(
        ("text/plain", b"a\r\nb\rc", "a\nb\nc"),
        ("text/plain; charset=utf-8", "\ufeffä".encode(), "ä"),
        ("text/plain", "ä".encode("utf-16"), "ä"),
        (
            "text/markdown",
            b"# Jan\n\nHe *paints* `a<b`\nat [home](x).\n\n* one\n* two\n",
            "# Jan\n\nHe paints a<b at home.\n\none\n\ntwo",
        ),
        (
            "text/markdown",
            # Rows stay as they are. A parser of tables would give each row as
            # many cells as the header has: the square of the document's size.
            b"| a | b |\n|---|---|\n| 1 |\n\n<script>x()</script>\n",
            "| a | b | |---|---| | 1 |",
        ),
        (
            "text/HTML",
            b"<title>x</title><h2>Jan <i>N.</i></h2><p>He<br>p&amp;s"
            b"<script>if (a<b) x()</script><div>\n in <b>Krakow</b></div>.",
            "## Jan N.\n\nHe p&s\n\nin Krakow\n\n.",
        ),
        # If no encoding is declared, bytes that are not UTF-8 are Latin-1.
        ("text/html", "<p>ä".encode("latin-1"), "ä"),
        ("text/html", '<meta charset="cp1250"><p>ł'.encode("cp1250"), "ł"),
        ("text/html", b"", ""),
        # A parser that limits the depth of elements would stop here.
        ("text/html", b"<div>" * 5000 + b"a", "a"),
    )
    def test_converts(self, kind, content, expected):
        self.assertEqual(expected, page.to_text(content, kind))

    def test_what_cannot_be_converted(self):
        for kind, content, message in (
            ("application/pdf", b"%PDF", "is application/pdf. Choose"),
            ("", b"a", "of no known type"),
            ("text/plain", b"ab\xff", "its byte 2"),
        ):
            with self.assertRaisesRegex(UserError, message):
                page.to_text(content, kind)


class BrowserTestCase(tf.test.TestCase, parameterized.TestCase):
    """Opens pages in one browser."""

    width = 1280

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = pages.open_browser(cls.width)
        cls.addClassCleanup(cls.browser.quit)

    def open_page(self, model, example=None):
        """Opens the page of a model; returns its address."""
        address = self.enterContext(pages.serving(model, example))
        self.browser.get(address)
        # Reading the log clears problems of earlier pages.
        self.browser.get_log("browser")
        self.wait(lambda: self.at("ask").is_enabled() or self.problem())
        return address

    def at(self, name):
        return self.browser.find_element(By.ID, name)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map(x => x.textContent)",
            selector,
        )

    def problem(self):
        return self.at("problem").text

    def count(self, selector):
        """Counts elements faster than `len(self.all(selector))`."""
        return self.browser.execute_script(
            "return document.querySelectorAll(arguments[0]).length", selector
        )

    def wait(self, condition):
        WebDriverWait(self.browser, 120, 0.05).until(lambda _: condition())

    def fill(self, **values):
        for name, text in values.items():
            self.at(name).clear()
            self.at(name).send_keys(text)

    def ask(self):
        self.at("ask").click()
        self.wait_for_answer()

    def wait_for_answer(self):
        self.wait(lambda: "Answered" in self.at("status").text)

    def check_log(self):
        """Checks that the page had no error and broke no rule of its policy."""
        self.assertEqual([], self.browser.get_log("browser"))


class TasksTest(BrowserTestCase):
    """Asks in the page, and compares its marks with the REST answer."""

    def _answer(self, task, **inputs):
        """Asks in the page; returns the REST answer to the same inputs."""
        address = self.open_page(pages.tiny_model(task))
        self.fill(**inputs)
        self.ask()
        body = {"signature_name": "text", "instances": [inputs]}
        request = urllib.request.Request(
            f"{address}v1/models/mine:predict", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request) as response:
            (prediction,) = json.load(response)["predictions"]
        self.check_log()
        return prediction

    def _check_shades(self, units, probabilities):
        """Checks that each unit is shown, shaded by its probability."""
        shown = [x.strip() for x in self.texts(".etc-shaded")]
        self.assertEqual(units, shown)
        shades = self.browser.execute_script(
            "return [...document.querySelectorAll('.etc-shaded')]"
            ".map(x => Number(x.style.getPropertyValue('--shade')))"
        )
        self.assertAllClose(probabilities, shades, atol=6e-4)

    def _check_most_probable(self, units, probabilities):
        """Clicks on the most probable unit, and checks that it is marked."""
        best = units[max(range(len(units)), key=probabilities.__getitem__)]
        bar = self.all("#choices section:last-child button")[0]
        self.assertStartsWith(bar.text, best)
        bar.click()
        marked = "".join(self.texts("mark.etc-evidence, mark.etc-answer"))
        self.assertIn(best, marked)

    def _check_span(self, prediction):
        """Checks the mark of a span answer."""
        marked = self.texts("mark.etc-answer")
        if prediction["answer_type"] == 0:
            self.assertEqual([prediction["answer"]], marked)
            self.assertEqual(prediction["answer"], self.at("answer").text)
            paragraph = self.browser.execute_script(
                "return [...document.querySelectorAll('.etc-paragraph')]"
                ".findIndex(x => x.querySelector('mark.etc-answer'))"
            )
            if prediction["answer_unit"] >= 0:
                self.assertEqual(prediction["answer_paragraph"], paragraph)
        else:
            self.assertEqual([], marked)

    def test_classify(self):
        made = self._answer("classify", query="", text=_TEXT)
        self.assertEqual(made["label"], self.at("answer").text)
        order = sorted(zip(made["probabilities"], made["labels"], strict=True))
        for bar, (value, label) in zip(
            self.all(".etc-bar"), reversed(order), strict=True
        ):
            self.assertEqual(f"{label}\n{percent(value)}", bar.text)

    def test_select(self):
        made = self._answer("select", query="Where?", text=_TEXT)
        self.assertEqual(_SENTENCES, made["units"])
        self._check_shades(made["units"], made["unit_probabilities"])
        selected = [
            unit
            for unit, is_selected in zip(
                made["units"], made["is_selected"], strict=True
            )
            if is_selected
        ]
        self.assertEqual(selected, self.texts("mark"))
        self._check_most_probable(made["units"], made["unit_probabilities"])

    def test_answer(self):
        made = self._answer("answer", query="Where?", text=_TEXT)
        self._check_shades(_SENTENCES, made["unit_probabilities"])
        self._check_span(made)
        self._check_most_probable(made["units"], made["unit_probabilities"])

    def test_hotpotqa(self):
        made = self._answer("hotpotqa", query="Where?", text=_TEXT)
        values = sum(made["supporting_fact_probabilities"], [])
        self._check_shades(_SENTENCES, values)
        self._check_span(made)
        self._check_most_probable(_SENTENCES, values)

    def test_wikihop(self):
        names = ["poland", "austria", "krakow"]
        made = self._answer(
            "wikihop",
            query="city jan novak",
            candidates="\n".join(names),
            text=_TEXT,
        )
        self.assertEqual(made["answer"], self.at("answer").text)
        for bar in self.all(".etc-bar"):
            name = bar.text.split("\n")[0]
            bar.click()
            self.assertEqual(
                re.findall(name, _TEXT, re.IGNORECASE), self.texts("mark")
            )
            self.assertEqual("true", bar.get_attribute("aria-pressed"))
            value = made["candidate_probabilities"][names.index(name)]
            self.assertEqual(f"{name}\n{percent(value)}", bar.text)

    def test_nq(self):
        made = self._answer("nq", query="where", text=_TEXT)
        tokens = made["tokens"]
        self.assertEqual(
            "<P> Jan Novak is a cook . He lives in Krakow . </P> <P> Krakow is "
            "a city in Poland . It is ä < b . </P>".split(),
            tokens,
        )
        for bar, name in zip(
            self.all(".etc-bar"), ("short", "long"), strict=True
        ):
            start, end = (
                made[f"best_{name}_answer_{x}"] for x in ("start", "end")
            )
            bar.click()
            expected = "".join(tokens[start:end])
            self.assertEqual(
                expected.replace("<P>", "").replace("</P>", ""),
                "".join("".join(self.texts("mark")).split()),
            )

    def test_openkp(self):
        made = self._answer("openkp", text=_TEXT)
        words = [x.strip(".<").lower() for x in _TEXT.split()]
        for bar, phrase in zip(
            self.all(".etc-bar"), made["keyphrases"], strict=True
        ):
            self.assertStartsWith(bar.text, phrase)
            bar.click()
            sought = [x.strip(".").lower() for x in phrase.split()]
            number = sum(
                words[i : i + len(sought)] == sought for i in range(len(words))
            )
            marked = self.texts("mark.etc-answer")
            self.assertEqual(
                [*sought] * number, " ".join(marked).lower().split()
            )

    @parameterized.parameters("hotpotqa", "narrativeqa", "triviaqa")
    def test_read_twice(self, name):
        text = _TEXT.replace("# Jan Novak\n", "Ä ")
        made = self._answer(f"read_twice_{name}", query="Where?", text=text)
        start, end = made["answer_start"], made["answer_end"]
        expected = text.encode()[max(start, 0) : max(end, 0)].decode()
        self.assertEqual(expected, "\n\n".join(self.texts("mark")))
        self.assertEqual(made["answer"], self.at("answer").text)


def _select_sentences(record):
    """Replaces a model: selects the sentences that contain the word x."""
    units = re.findall(r"[^\s.][^.\n]*\.", record["text"])
    values = [0.9 if re.search(r"\bx\b", unit) else 0.1 for unit in units]
    return {
        "units": units,
        "unit_probabilities": values,
        "is_selected": [value > 0.5 for value in values],
        "tokens_cut": 0,
    }


class PageTest(BrowserTestCase):
    """Tests the page without a model: a function gives the answers."""

    def _open(self, answer=_select_sentences, **example):
        return self.open_page(pages.StubModel("select", answer), example)

    def test_begins_with_the_example(self):
        self._open(query="Who?", text="One x. Two.")
        self.assertEqual("Who?", self.at("query").get_property("value"))
        self.ask()
        self.assertEqual(["One x."], self.texts("mark"))
        # The page loads nothing from other servers.
        loaded = self.browser.execute_script(
            "return performance.getEntriesByType('resource').map(x => x.name)"
        )
        hosts = {x.split("/")[2] for x in loaded}
        self.assertEqual({self.browser.current_url.split("/")[2]}, hosts)
        self.check_log()

    def test_texts_are_never_html(self):
        attack = (
            "# <b>x</b>\n<script>document.title='bad'</script> x. "
            "<img src=x onerror=\"document.title='bad'\"> &amp; 'x'."
        )
        self._open(query="<i>q</i>", text=attack)
        self.ask()
        self.all("button.etc-bar")[0].click()
        shown = self.at("document").get_attribute("textContent")
        self.assertEqual(
            one_line(attack).removeprefix("# ").replace("</b> <", "</b><"),
            one_line(shown),
        )
        self.assertEqual([], self.all("#result script, #result img, #result b"))
        self.assertNotEqual("bad", self.browser.title)
        headers = urllib.request.urlopen(self.browser.current_url).headers
        self.assertIn("script-src 'self'", headers["Content-Security-Policy"])
        html = page.read_file(page.PAGE).decode()
        self.assertNotRegex(html, r"\son\w+=|style=|https?:|<script>")
        for name in page.FILES:
            code = page.read_file(name).decode()
            self.assertNotRegex(code, r"innerHTML|outerHTML|insertAdjacentHTML")
            self.assertNotRegex(code, r"document\.write|eval\(|https?://")
        self.check_log()

    def test_keyboard(self):
        self._open(text="One. Two x. Three.")
        self.at("query").click()

        def press(*keys):
            ActionChains(self.browser).send_keys(*keys).perform()

        def focused():
            return self.browser.switch_to.active_element.get_attribute("id")

        press("Who", Keys.ENTER)
        self.wait_for_answer()
        self.assertEqual("answer-title", focused())
        # Tabs lead from the answer to the second alternative, Enter selects it.
        press(Keys.TAB, Keys.TAB, Keys.ENTER)
        self.assertEqual(["One."], self.texts("mark"))
        # Tabs lead from the query to the document, the file and the button.
        self.at("query").click()
        press(Keys.TAB)
        self.assertEqual("text", focused())
        press(Keys.TAB)
        self.assertEqual("file", focused())
        press(Keys.TAB)
        self.assertEqual("ask", focused())
        self.fill(text="New x.")
        self.at("text").send_keys(Keys.CONTROL, Keys.ENTER)
        self.wait(lambda: self.texts("mark") == ["New x."])

    def test_control_characters_are_spaces(self):
        requests = []

        def answer(record):
            requests.append(record)
            return _select_sentences(record)

        self._open(answer)
        text = "One\ttwo.\x0cThree\x00 x.\x85\nFour\x1f\x7f x."
        self.browser.execute_script(
            "document.getElementById('text').value = arguments[0]", text
        )
        self.ask()
        expected = "One\ttwo. Three  x. \nFour   x."
        self.assertEqual([expected], [x["text"] for x in requests])
        self.assertEqual(["Three  x.", "Four   x."], self.texts("mark"))

    def test_enter_that_ends_a_composition_does_not_ask(self):
        self._open(query="Who?", text="One x.")
        for event in ("isComposing: true", "keyCode: 229"):
            asked = self.browser.execute_script(
                "const event = new KeyboardEvent('keydown', {key: 'Enter', "
                f"bubbles: true, cancelable: true, {event}}});"
                "document.getElementById('query').dispatchEvent(event);"
                "return event.defaultPrevented;"
            )
            self.assertFalse(asked, event)

    def test_right_to_left(self):
        self._open(query="מי?", text="# כותרת\nגר x.\n\nOne x.")
        self.ask()
        for selector, expected in (
            ("#query", ["rtl"]),
            ("#text", ["rtl"]),
            (".etc-title, .etc-paragraph", ["rtl", "rtl", "ltr"]),
            (".etc-bar-label", ["rtl", "ltr"]),
        ):
            found = [
                (x.value_of_css_property("direction"))
                for x in self.all(selector)
            ]
            self.assertEqual(expected, found, selector)
        self.assertEqual("auto", self.at("answer").get_attribute("dir"))
        (label, _) = self.all(".etc-bar-label")
        self.assertEqual("start", label.value_of_css_property("text-align"))

    def test_asks_for_what_is_missing(self):
        def focused():
            return self.browser.switch_to.active_element.get_attribute("id")

        answer = {"answer": "b", "answer_index": 0, "candidates": ["b"]}
        answer["candidate_probabilities"] = [1.0]
        model = pages.StubModel("wikihop", lambda record: answer)
        self.open_page(model, {"query": " ", "text": "b", "candidates": "\n "})
        self.at("ask").click()
        self.wait(lambda: self.problem() == "Write a question.")
        self.assertEqual("query", focused())
        self.fill(query="Who?")
        self.at("ask").click()
        self.wait(lambda: self.problem() == "Give at least one candidate.")
        self.assertEqual("candidates", focused())
        self.fill(candidates="b")
        self.ask()
        self.assertEqual("", self.problem())
        # The page and `predict` need questions for the same tasks.
        for name, spec in registry.tasks().items():
            if not spec.has_answers:
                continue
            preprocessor = load(spec.preprocessor)
            if "query" in preprocessor.TEXT_REQUEST:
                is_optional = self.browser.execute_script(
                    "return etcTasks.TASKS[arguments[0]].isQueryOptional", name
                )
                self.assertEqual(preprocessor.NEEDS_QUERY, not is_optional)

    def test_narrow_window(self):
        self.addCleanup(self.browser.execute_cdp_cmd, _CLEAR, {})
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 360, "height": 640, "deviceScaleFactor": 1}
            | {"mobile": False},
        )
        self._open(text=f"{'word ' * 50} x. {'long' * 100}. # {'y' * 300}.")
        self.ask()
        width, content = self.browser.execute_script(
            "const page = document.documentElement;"
            "return [innerWidth, page.scrollWidth];"
        )
        self.assertEqual(360, width)
        self.assertLessEqual(content, width)
        self.all("button.etc-bar")[0].click()
        self.assertTrue(self.all("mark")[0].is_displayed())

    def test_a_hundred_thousand_words(self):
        """A long document needs few elements; the selection is in sight."""
        sentence = "these are just ten words of a long text here. "
        paragraphs = [sentence * 10] * 1000
        paragraphs[900] = sentence * 5 + "here is x. " + sentence * 5
        text = "\n\n".join(paragraphs)
        self._open(text=text)
        self.assertRegex(self.at("count").text, r"^100,0\d\d words")
        self.ask()
        self.wait(lambda: self.count(".etc-shaded") == 10_001)
        self.wait(lambda: self.texts("mark") == ["here is x."])
        # There is one element per sentence and per paragraph, and one for the
        # mark.
        self.assertLess(self.count("#document *"), 11_100)
        self.wait(lambda: self._is_in_sight(self.all("mark")[0]))
        self.assertEqual(
            "auto",
            self.browser.find_element(
                By.CLASS_NAME, "etc-paragraph"
            ).value_of_css_property("content-visibility"),
        )

    def _is_in_sight(self, element):
        return self.browser.execute_script(
            "const x = arguments[0].getBoundingClientRect();"
            "return x.top >= 0 && x.bottom <= innerHeight;",
            element,
        )

    def test_opens_files(self):
        self._open(text="")
        with tempfile.TemporaryDirectory() as folder:
            for name, content, expected in (
                ("a.md", "## T\n\nOne *x*.", "## T\n\nOne x."),
                ("b.html", "<h1>T</h1><p>Two<p>x.", "# T\n\nTwo\n\nx."),
                ("c.txt", "Three *x*.", "Three *x*."),
            ):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write(content)
                self.at("file").send_keys(path)
                self.wait(
                    lambda expected=expected: (
                        self.at("text").get_property("value") == expected
                    )
                )
            self.browser.execute_script(
                "const dataTransfer = new DataTransfer();"
                "dataTransfer.items.add(new File(['# T\\n\\nA *y*.'], 'd.md'));"
                "document.getElementById('text').dispatchEvent(new DragEvent("
                "'drop', {dataTransfer, bubbles: true, cancelable: true}));"
            )
            self.wait(
                lambda: self.at("text").get_property("value") == "# T\n\nA y."
            )
            path = os.path.join(folder, "e.pdf")
            with open(path, "wb") as stream:
                stream.write(b"%PDF")
            self.at("file").send_keys(path)
            self.wait(lambda: "application/pdf" in self.problem())

    def test_problems_are_sentences(self):
        def refuse(record):
            raise UserError(f"The text {record['text']} is bad.")

        self._open(refuse, text="")
        self.at("ask").click()
        self.wait(lambda: "document is empty" in self.problem())
        self.fill(text="<b>a</b>")
        self.at("ask").click()
        self.wait(lambda: "The text <b>a</b> is bad." in self.problem())
        self.assertFalse(self.at("result").is_displayed())
        model = pages.StubModel("select", _select_sentences)
        model.specs = {}
        self.open_page(model)
        self.assertIn("Export it again", self.problem())


_CLEAR = "Emulation.clearDeviceMetricsOverride"


if __name__ == "__main__":
    tf.test.main()
