import json
import os
import tempfile

import tensorflow as tf

from benchmarks import sentence_splitting
from etcmodel.feature_utils.text import sentences
from testing.helpers import real_data_path

SPLIT = tf.function(
    sentences.split_sentences,
    input_signature=[tf.TensorSpec([None], tf.string)],
)


class SentencesTest(tf.test.TestCase):
    def test_splits(self):
        """Splits texts at "|"."""
        marked = (
            "Mr. Bo ran 3.5 km.| He won!",
            "He asked: why?| Nobody knew…| Then it ended!",
            "J. R. R. Tolkien wrote it.| S. P. Y. Reddy (born 1950) did not.",
            "The U.S. Army came.| In the U.S. Smith works.",
            "He lives in the U.S.| The army left at 5 p.m.| It rained.",
            "He left at 5 p.m. yesterday, i.e. Sunday, with Dr. X vs. St. Y.",
            "See No. 5.| Nos. 7 and 8, Vol. 3, p. 12, of Jan. 5, 1990.| Fine.",
            "Wang Mang (c. 45 BC) ruled.| Vitamin C.| It helps.",
            "Apple Inc. announced it.| It was Apple Inc.| The end.",
            '"Stop!" he said.| "Go."| She went (home.)| Then 2004 came.',
            "10,625 athletes competed.| 2004 marked the return.",
            "born in 1969 .| he won .| the end ?| yes",
            "这是。|那是！|对吗？|是",
            "A title\n\n|two\nlines\n \n|three",
            "What?!| Wait...| Go. home",
            "It was World War I.| The war ended.",
            "«Non.»| «Oui.»| Élan began.",
            "no end",
            "ends with a mark.",
            *("", " \n\t ", "\x1e"),
        )
        self._check(*marked)

    def _check(self, *marked):
        split = SPLIT(tf.constant([text.replace("|", "") for text in marked]))
        for text, parts in zip(marked, split.to_list(), strict=True):
            expected = [part.strip("\x1e \n\t") for part in text.split("|")]
            self.assertEqual(
                [part.decode() for part in parts],
                expected if expected[0] else [],
            )

    def test_other_scripts(self):
        """Splits texts in other scripts at "|"."""
        self._check(
            "यह एक है।| वह दो है ।| क्या?| हाँ॥",
            "এটি এক।| ওটি দুই।| কি?| হ্যাঁ।",
            "یہ ایک ہے۔| وہ دو ہے۔| کیا؟| ہاں",
            "هذا واحد.| هل هذا اثنان؟| نعم!| انتهى",
            "ይህ አንድ ነው።| ያ ሁለት ነው።|እሺ፧| አዎ",
            "Սա մեկ է։| Դա երկու է։| Այո",
            "ဒါက တစ်။| ဟိုဟာ နှစ်။|ဟုတ်",
            "នេះ មួយ។| នោះ ពីរ។| បាទ",
            "Είναι ένα;| Όχι· είναι δύο.| Ναι",
            "a; B stays, as the semicolon is not a question mark here",
            "བོད།|གཅིག།",
        )

    def test_words_that_end_like_abbreviations(self):
        """Non-ASCII letters are part of a word, precomposed or not."""
        self._check(
            "Il vit à Montréal.| Elle vit à Paris.",
            "Il vit à Montre\u0301al.| Elle vit à Paris.",
            "C'est idéal.| Nous partons.",
            "Ez a szív.| A test él.",
            "Čekal měsíc.| 12 dní zbývá.",
            # Abbreviations match at the beginning, and after characters that
            # are not letters.
            "Dr. Bo (cf. Eve) and l'al. Oc, 5-al. Oc, see No. 5 (p. 12).",
            "Ivy Inc. and Ivy Co.| The end.",
        )

    def test_dates_with_ordinals(self):
        """German writes months with a capital, other languages without."""
        self._check(
            "Am 3. Oktober 1990 war es soweit.| Am 24. Dezember kam er.",
            "Vom 1. Mai bis 31. März.| Bis 7. Okt. 1990.| Ende.",
            "Im 19. Jahrhundert und im 18.–20. Jahrhundert.| Ende.",
            "3. Oktober 1990",
            "Dne 3. 10. 1990 přišel.| 3. října 1990 odešel.",
            # In these texts, a number before a period is not a date.
            "He was 30.| Then he left in 1990.| Then it ended.",
            "He was 30.| Maine was cold.| Er war 30.| Oktoberfest war.",
            "It was 1803.| Oktober war kalt.| Es war 45.| Mai war es.",
            "He has 3.| 10 are left.",
            "Bylo jich 10.| Nová vláda přišla.",
        )

    def test_numbers_of_items(self):
        """A number of one or two digits is not a sentence by itself."""
        self._check(
            "1. First item.| 2. Second item.",
            " 10. Tenth item.",
            "Items:|\n1. First item.|\n2. Second item.|\n 3. Third",
            "1.2. Term.| The term is long.| 1.2.10. Notice.",
            "These stay: in 1990.| Then 2.| Next.",
            "1990.| Then it ended.",
            "How many?| 12",
            "1.\n\n|First",
        )

    def test_scripts_without_marks_are_cut_by_length(self):
        """Splits at a space at least 80 characters after the first letter."""
        word, short = "ก" * 30, "ข" * 10
        self._check(
            f"{word} {word} {word}| {word} {word}",
            f"{word} {word} {short}a {word}| {short}",
            f"{word} {word}.| {word} {word} {short}",
            "ລ" * 100 + "| " + "ລ" * 20,
            "ก" * 200,
            ("x" * 30 + " ") * 8,
        )

    def test_abbreviations_and_lists(self):
        """Splits texts that are marked by hand; the test lists known errors."""
        known = (
            "Firma Novák s. r. o.",
            "Kaiser Wilhelm II.",
            "Fu nel sec. XIX",
        )
        for language, passages in sentence_splitting.read_marked().items():
            parts = sentence_splitting.split(passages)
            for units, found in zip(passages, parts, strict=True):
                if not units[0].startswith(known):
                    units = [unit.strip() for unit in units]
                    self.assertEqual(found, units, language)

    def test_abbreviations_across_languages(self):
        """An abbreviation in one language can end a sentence in another."""
        self._check(
            "Don't tell Al.| He can't.| Bob won't.| It's Eve's.| Mend it.",
            "It ran 40 km/h.| Maria has a degree (BS).| The end.",
            "Das Vieh ist auf der Alm.| Das Heu auch.| Er weiß es.| Gut.",
            "Это я.| Хлеба нет.| Ten je můj.| Jan ví to.",
            # Abbreviations with non-breaking white space, and without white
            # space.
            "Das gilt z.\u00a0B. Bo, z.B. Eve, d.\u202fh. allen.| Gut.",
        )

    def test_near_items_and_others(self):
        """An item needs a colon before it, or another item nearby."""
        self._check(
            "Sie kam am\n3. Mai.| Er kam, wie\nz. B. Bo, im\nJahr 1990.",
            "We saw it (page\n12) and left\n- as ever - early.",
            "a\n1) b\nc\nd\ne\nf\n2) g",
            "a|\n1) b\nc\nd\ne|\n2) f",
            "a\n1) b\n\n|2) c",
            "3 - 2 + 1 * 4 is 5.| It is (a) red or 1) blue.",
            "p <i>q</i> <link> <lime> r</p>",
        )

    def test_real_sentences_of_other_languages(self):
        """Sentence ends have a precision and a recall of at least 99 %."""
        for language in "ar de el es hi ro ru tr vi zh".split():
            folder = os.path.dirname(
                real_data_path(f"languages/{language}.txt")
            )
            passages = sentence_splitting.read_lines(folder, language)
            found = sentence_splitting.score(language, "", passages)
            self.assertEqual(found["boundaries"], 200)
            self.assertGreaterEqual(found["precision"], 0.99, language)
            self.assertGreaterEqual(found["recall"], 0.99, language)

    def test_any_shape(self):
        texts = tf.ragged.constant([["Ab. Cd.", ""], [], ["E."]])
        expected = [[[b"Ab.", b"Cd."], []], [], [[b"E."]]]
        self.assertEqual(sentences.split_sentences(texts).to_list(), expected)
        dense = sentences.split_sentences([["Ab. Cd.", ""], ["", "E."]])
        self.assertEqual(
            dense.to_list(), [[[b"Ab.", b"Cd."], []], [[], [b"E."]]]
        )
        self.assertAllEqual(
            sentences.split_sentences("Ab. Cd."), ["Ab.", "Cd."]
        )

    def test_graph_uses_few_ops(self):
        graph = SPLIT.get_concrete_function().graph
        text_ops = {
            op.type
            for op in graph.get_operations()
            if "tring" in op.type or "Regex" in op.type
        }
        self.assertContainsSubset(
            text_ops,
            {"StaticRegexReplace", "StringSplitV2", "StringStrip"},
        )

    def test_saved_model_and_memory(self):
        """Patterns fit into RE2's memory. Otherwise RE2 is slow and logs it."""
        texts = [
            "".join(units)
            for passages in sentence_splitting.read_marked().values()
            for units in passages
        ]
        module = tf.Module()
        module.split = SPLIT
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder)
            loaded = tf.saved_model.load(folder)
            with tempfile.TemporaryFile() as log:
                stderr = os.dup(2)
                os.dup2(log.fileno(), 2)
                try:
                    found = loaded.split(tf.constant(texts))
                finally:
                    os.dup2(stderr, 2)
                    os.close(stderr)
                log.seek(0)
                self.assertNotIn(b"out of memory", log.read())
        expected = sentences.split_sentences(texts)
        self.assertEqual(found.to_list(), expected.to_list())

    def test_400000_characters(self):
        units = ("a", "A. ", "x y ", "\n\n", '"', "Mr. ", "1.", "ก", "ก ")
        units += ("z. B. ", "U.S. The ", "im 2. ", "e.", "\n- ", "\n1. ", "• ")
        units += ("<li>", "<ul ", "<ul> ", "</li>", "\n1) a\nb\nc\nd\ne\n")
        texts = [(unit * 400_000)[:400_000] for unit in units]
        for text, parts in zip(texts, SPLIT(texts).to_list(), strict=True):
            joined = b"".join(parts).decode()
            self.assertEqual("".join(joined.split()), "".join(text.split()))

    def test_real_text_loses_nothing_but_white_space(self):
        with open(real_data_path("wikihop/train_22.json")) as file:
            texts = [x for r in json.load(file) for x in r["supports"]]
        with open(real_data_path("wikitext/wiki.valid.raw")) as file:
            texts.append(file.read()[:400_000])
        pieces = SPLIT(tf.constant(texts)).to_list()
        for text, parts in zip(texts, pieces, strict=True):
            joined = b"".join(parts).decode()
            self.assertEqual("".join(joined.split()), "".join(text.split()))
        # A simple rule finds 4.1 sentences per text in these 354 short texts.
        number = sum(len(parts) for parts in pieces[:-1])
        self.assertBetween(number / (len(texts) - 1), 3, 5)


if __name__ == "__main__":
    tf.test.main()
