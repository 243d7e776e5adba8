import json
import os
from unittest import mock

import tensorflow as tf
from absl import flags

from benchmarks import measure
from benchmarks import openkp_small
from benchmarks import training_runs
from etcmodel.models import EtcConfig


class OpenKPSmallTest(tf.test.TestCase):
    def _run(self, *arguments):
        """Rows and commands, which do nothing but write what is read."""
        values = flags.FlagValues()
        openkp_small.define_flags(values)
        values(["x", "--pages=6", "--heldout=4", *arguments])
        commands = []

        def run_command(*arguments):
            commands.append(arguments)
            for x in arguments:
                if arguments[0] == "lift" and x.startswith("--output_dir="):
                    folder = x.removeprefix("--output_dir=")
                    os.mkdir(folder)
                    config = EtcConfig.from_preset("tiny", hidden_size=24)
                    path = os.path.join(folder, "etc_config.json")
                    with open(path, "w") as stream:
                        stream.write(config.to_json_string())
                if x.startswith("--output="):
                    metrics = ("precision_at_3", "recall_at_3", "f1_at_3")
                    with open(x.removeprefix("--output="), "w") as stream:
                        json.dump(dict.fromkeys(metrics, 0.5), stream)

        with mock.patch.object(
            training_runs, "run_command", side_effect=run_command
        ):
            return openkp_small.run(values), commands

    def test_rows(self):
        """Each variant learns the same pages, and is measured on others."""
        output = os.path.join(self.get_temp_dir(), "rows.jsonl")
        rows, commands = self._run("--steps=7", f"--output={output}")
        self.assertEqual([*openkp_small.VARIANTS], [x["name"] for x in rows])
        self.assertEqual({0.5}, {x["f1_at_3"] for x in rows})
        self.assertEqual(
            ["preprocess"] * 2 + ["train", "evaluate"] * 3,
            [x[0] for x in commands],
        )
        inputs = [
            next(y for y in x if y.startswith("--input=")) for x in commands[:2]
        ]
        self.assertNotEqual(*inputs)
        with open(output) as stream:
            self.assertLen([*map(json.loads, stream)], 3)
        self.assertEqual(7, rows[0]["steps"])
        self.assertIn("f1_at_3", measure.format_table(rows, {"f1_at_3": ".1f"}))

    def test_lifted(self):
        """Next to random weights of the same sizes, as many steps."""
        directory = os.path.join(self.get_temp_dir(), "runs")
        rows, commands = self._run(
            "--lift=bert", "--lift_steps=3", f"--directory={directory}"
        )
        self.assertEqual(["random weights", "BERT"], [x["name"] for x in rows])
        self.assertEqual({3}, {x["steps"] for x in rows})
        random, lifted = (x for x in commands if x[0] == "train")
        self.assertIn(f"--init_checkpoint={directory}/lifted", lifted)
        self.assertNotIn("--init_checkpoint", " ".join(random))
        (config,) = [x for x in random if x.startswith("--config_file=")]
        with open(config.removeprefix("--config_file=")) as stream:
            encoder = json.load(stream)["task"]["model"]["encoder"]
        self.assertEqual(24, encoder["hidden_size"])
        phrases, headings = [], []
        for seed in ("0", "1000000"):
            path = f"{directory}/wordpieces/pages_{seed}.jsonl"
            with open(path) as stream:
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
