import json
import os

import tensorflow as tf

from benchmarks import openkp_small
from benchmarks import program
from testing import benchmark_commands


class OpenKPSmallTest(tf.test.TestCase):
    def _run(self, *arguments):
        values = program.parse(
            openkp_small.PROGRAM, "--pages=6", "--heldout=4", *arguments
        )
        metrics = benchmark_commands.write_metrics(f1_at_3=0.5)
        with benchmark_commands.fake_commands(evaluate=metrics) as seen:
            return program.run(openkp_small.PROGRAM, values), seen

    def test_rows(self):
        """Each variant learns the same pages, and is measured on others."""
        rows, seen = self._run("--steps=7")
        self.assertEqual([*openkp_small.VARIANTS], [x["name"] for x in rows])
        self.assertEqual({0.5}, {x["f1_at_3"] for x in rows})
        self.assertEqual({7}, {x["steps"] for x in rows})
        self.assertEqual(
            ["preprocess"] * 2 + ["train", "evaluate"] * 3, [x for x, _ in seen]
        )
        self.assertNotEqual(*(given["input"] for _, given in seen[:2]))

    def test_lifted(self):
        """Next to random weights of the same sizes, as many steps."""
        directory = os.path.join(self.get_temp_dir(), "runs")
        rows, seen = self._run(
            "--lift=bert", "--lift_steps=3", f"--directory={directory}"
        )
        self.assertEqual(["random weights", "BERT"], [x["name"] for x in rows])
        self.assertEqual({3}, {x["steps"] for x in rows})
        random, lifted = (given for x, given in seen if x == "train")
        self.assertEqual(f"{directory}/lifted", lifted["init_checkpoint"])
        self.assertNotIn("init_checkpoint", random)
        encoder = random["config"]["task"]["model"]["encoder"]
        self.assertEqual(24, encoder["hidden_size"])
        phrases, headings = [], []
        for _, given in seen[1:3]:
            self.assertEqual(
                f"{directory}/lifted/vocab.txt", given["vocab_file"]
            )
            with open(given["input"], encoding="utf-8") as stream:
                pages = [json.loads(line) for line in stream]
            texts = " ".join(page["text"] for page in pages)
            phrases.append({x for p in pages for x in sum(p["KeyPhrases"], [])})
            headings.append(
                {x for x in openkp_small.OTHER_HEADINGS if x in texts}
            )
        for learned, measured in (phrases, headings):
            self.assertNotEmpty(learned)
            self.assertNotEmpty(measured)
            self.assertNoCommonElements(learned, measured)


if __name__ == "__main__":
    tf.test.main()
