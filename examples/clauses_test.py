import tensorflow as tf

from examples import clauses


class ClausesTest(tf.test.TestCase):
    def test_features(self):
        texts, void = clauses.make_contracts(50, 0)
        features = clauses.make_features(tf.constant(texts))
        for text, label, target in zip(
            texts, void, features["refers"].numpy(), strict=True
        ):
            for i, clause in enumerate(text):
                if clause.startswith("read"):
                    other = int(clause.split()[-1]) - 1
                    self.assertEqual(other, target[i])
                    self.assertEqual(text[other] == "this is void", label[i])
                else:
                    self.assertEqual(-1, target[i])
                    self.assertEqual(clause == "this is void", label[i])
        # Half of the clauses refer to another clause.
        self.assertBetween((features["refers"] >= 0).numpy().mean(), 0.4, 0.6)

    def test_learns_with_links(self):
        """Without links, the accuracy would be about 90 %."""
        self.assertGreater(clauses.main(self.get_temp_dir()), 0.95)


if __name__ == "__main__":
    tf.test.main()
