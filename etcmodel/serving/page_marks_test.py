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
