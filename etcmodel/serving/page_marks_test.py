import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import plain_documents
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from testing import pages


class MarksTest(parameterized.TestCase):
    """Tests which places of a text are marked, by the page's functions."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = pages.open_browser()
        cls.addClassCleanup(cls.browser.quit)
        stub = pages.StubModel("select", dict)
        served = pages.serving(stub, {})
        cls.browser.get(cls.enterClassContext(served))

    def _run(self, code, *values):
        """Returns the value of an expression over `values`."""
        return self.browser.execute_script(
            f"const values = arguments; return {code};", *values
        )

    def _marked(self, task, text, prediction):
        """Returns the marked pieces of a text."""
        return self._run(
            "etcTasks.TASKS[values[0]].show(values[1], values[2])"
            ".marks.map(({start, end}) => values[1].slice(start, end))",
            task,
            text,
            prediction,
        )

    def test_words_and_scripts_without_spaces(self):
        for text, phrase, starts in (
            ("Art is a part of art.", "art", [0, 17]),
            # Chinese, Japanese and Thai have no spaces between words.
            ("東京は日本の首都です。", "日本", [3]),
            ("カタカナのカナ", "カナ", [2, 5]),
            ("ประเทศไทยสวย", "ไทย", [6]),
            ("\U00020bb7x日", "x", [2]),
            # Letters outside the basic plane are letters: a whole word is left.
            ("\U0001d400a a", "a", [4]),
            # A mark belongs to its letter.
            ("e\u0301 e", "e", [3]),
            # Particles are joined to words.
            ("나는 서울에 산다", "서울", [3]),
            ("서울에 서울", "서울", [4]),
            ("גר בירושלים", "ירושלים", [4]),
            ("سكن والقاهرة", "القاهرة", [5]),
        ):
            found = self._run(
                "etcFind.findOccurrences(...values)", text, phrase
            )
            self.assertEqual(starts, [x["start"] for x in found], text)

    @parameterized.parameters(
        "Il dit «\u00a0mot\u00a0» hier. Paris est belle.",
        "  # Jan\nHe: (x).\n\n\u3000 ## Eva\n # N\n\n"
        "\u3000日本 \u3000x \u3000\u3000 y\n#",
        "\u2003a\n# \n\u2003b \u2003\n\n#\u2003c\n# d\ne <P> e\u0301</P>.",
        "# Jan",
    )
    def test_words_are_those_of_the_model(self, text):
        titles, paragraphs = plain_documents.split_paragraphs([text])
        found = self._run("etcFind.findBlocks(...values)", text)
        shown = {"title": [], "text": []}
        for block in found:
            shown[block["kind"]].append(text[block["start"] : block["end"]])
        self.assertEqual(
            [x for x in paragraphs.values.numpy() if x],
            [x.encode() for x in shown["text"]],
        )
        self.assertEqual(
            b" ".join(titles.values.numpy()).split(),
            " ".join(shown["title"]).encode().split(),
        )
        nq = load(registry.get("nq").preprocessor)
        inputs, _ = nq.of_text("", tf.constant([text]))
        tokens = [x.decode() for x in inputs["tokens"].numpy()[0]]
        places = self._run("etcFind.findTokens(...values)", text, tokens)
        for token, place in zip(tokens, places, strict=True):
            is_tag = token in ("<P>", "</P>")
            expected = None if is_tag else token.strip() or None
            got = place and text[place["start"] : place["end"]]
            self.assertEqual(expected, got)

    def test_answers_are_marked_where_the_model_found_them(self):
        """Positions are bytes of a unit; the page counts UTF-16 units."""
        text = "# Ö Oslo\nÖ Oslo 😀 Oslo x. Rome.\n\n# Oslo\nAn Oslo."
        sentences = [["Ö Oslo 😀 Oslo x.", " Rome."], ["An Oslo."]]
        flat = sum(sentences, [])
        scores = {"answer_probability": 0.5, "answer_type": 0}
        models = {
            "answer": {
                "units": flat,
                "unit_probabilities": [0.5] * 3,
                "unit_paragraphs": [0, 0, 1],
                "unit_numbers": [0, 1, 0],
                "no_answer_probability": 0.5,
            },
            "hotpotqa": {
                "sentences": sentences,
                "supporting_fact_probabilities": [[0.5, 0.5], [0.5]],
            },
        }
        names = [f"answer_{x}" for x in ("paragraph", "unit", "start", "end")]
        for answer, position, start in (
            ("Oslo", (0, 0, 3, 7), 11),
            # An emoji has 4 bytes, and 2 UTF-16 units.
            ("Oslo", (0, 0, 13, 17), 19),
            ("Oslo", (0, -1, 3, 7), 4),
            ("Oslo", (1, -1, 0, 4), 36),
            ("Oslo", (1, 0, 3, 7), 44),
            ("Rome", (0, 1, 1, 5), 27),
            ("Oslo", (2, 0, 0, 4), None),
            # A model of an earlier version returns no position.
            ("Rome", (), 27),
        ):
            for task, prediction in models.items():
                prediction = prediction | scores | {"answer": answer}
                prediction |= dict(zip(names, position, strict=False))
                shown = self._run(
                    "etcTasks.TASKS[values[0]].show(values[1], values[2])",
                    task,
                    text,
                    prediction,
                )
                starts = [x["start"] for x in shown["marks"]]
                expected = [] if start is None else [start]
                self.assertEqual(expected, starts, (task, position))
                is_missing = "could not be found" in shown["note"]
                self.assertEqual(start is None, is_missing)

    def test_answers_in_titles(self):
        """Headings without text between them form one title."""
        for text, places, expected in (
            ("# Oslo and Oslo\nHe.", (9, 13), ["Oslo"]),
            ("# The city\n\n## Ö Oslo \nHe.", (0, 8), ["The city"]),
            ("# The city\n\n## Ö Oslo \nHe.", (9, 16), ["Ö Oslo"]),
            ("# The city\n\n## Ö Oslo \nHe.", (4, 11), ["city", "Ö"]),
            ("He.\n\n# Oslo", (0, 4), None),
        ):
            prediction = {
                "answer": "Oslo",
                "answer_type": 0,
                "answer_probability": 0.5,
                "answer_paragraph": 0,
                "answer_unit": -1,
                "answer_start": places[0],
                "answer_end": places[1],
                "sentences": [["He."]],
                "supporting_fact_probabilities": [[0.5]],
            }
            marked = self._marked("hotpotqa", text, prediction)
            self.assertEqual(expected or [], marked, text)
            if expected == ["Oslo"]:
                marks = self._run(
                    "etcTasks.TASKS.hotpotqa.show(...values)", text, prediction
                )["marks"]
                self.assertEqual(11, marks[0]["start"])

    def test_places_to_choose_from_begin_with_the_answers_own(self):
        """An answer within a word has a place, too."""
        text = "Osloer came. Oslo is big. Oslo."
        prediction = {
            "answer": "Oslo",
            "answer_type": 0,
            "answer_probability": 0.5,
            "answer_paragraph": 0,
            "answer_unit": 0,
            "answer_start": 0,
            "answer_end": 4,
            "sentences": [["Osloer came.", "Oslo is big.", "Oslo."]],
            "supporting_fact_probabilities": [[0.1, 0.2, 0.9]],
        }
        choices = self._run(
            "etcTasks.TASKS.hotpotqa.show(...values)", text, prediction
        )["choices"]
        self.assertEqual(0, choices[0]["selected"])
        self.assertEqual(
            [0, 26, 13], [x["reveal"] for x in choices[0]["items"]]
        )

    def test_counts_words(self):
        for text, number in (
            ("", 0),
            (" Don't stop,\nwell-known. ", 3),
            # 東京/は/日本/の/首都/です
            ("Oslo 東京は日本の首都です。 x", 8),
        ):
            self.assertEqual(
                number, self._run("etcFind.countWords(...values)", text), text
            )
        # Older browsers do not divide words.
        found = self._run(
            "(() => { const kept = Intl.Segmenter; delete Intl.Segmenter;"
            "try { return etcFind.countWords(values[0]); }"
            "finally { Intl.Segmenter = kept; } })()",
            "Oslo 東京は x",
        )
        self.assertEqual(3, found)

    def test_keyphrases_with_combining_marks(self):
        for text, phrase, expected in (
            ("मेरा नाम की, और का है", "की", ["की"]),
            ("Caf\u00e9s. (Cafe\u0301) cafe", "cafe\u0301", ["Cafe\u0301"]),
            ("Caf\u00e9 x", "cafe\u0301", ["Caf\u00e9"]),
        ):
            prediction = {"keyphrases": [phrase], "keyphrase_scores": [0.5]}
            self.assertEqual(
                expected, self._marked("openkp", text, prediction), text
            )

    def test_candidates_of_which_only_a_part_of_a_word_is_there(self):
        candidates = ["art", "서울"]
        for index, expected in ((0, []), (1, ["서울"])):
            prediction = {
                "candidates": candidates,
                "candidate_probabilities": [0.5, 0.5],
                "answer": candidates[index],
                "answer_index": index,
            }
            marked = self._marked("wikihop", "A part. 서울에", prediction)
            self.assertEqual(expected, marked)


if __name__ == "__main__":
    tf.test.main()
