import tensorflow as tf

from testing.tasks import CommandTestCase
from testing.tasks import run_cli


class ExperimentsTest(CommandTestCase):
    def test_lists_experiments(self):
        out = self.assert_succeeds(run_cli("experiments"))
        self.assertStartsWith(out, "answer: answers with evidence")
        self.assertIn("\nhotpotqa: HotpotQA: answer", out)
        self.assertIn("  etc/nq_2x_radius  ", out)
        self.assertIn("  read_twice/pretrain_sts   ", out)
        self.assertIn("/hotpotqa_single_segment_10_layers each", out)
        out = self.assert_succeeds(run_cli("experiments", "wikihop"))
        self.assertLen(out.splitlines(), 8)
        self.assertEqual(
            out, self.assert_succeeds(run_cli("experiments", "--task=wikihop"))
        )
        self.assert_fails(run_cli("experiments", "squad"), "no such task")
        self.assert_fails(run_cli("experiments", "a", "b"), "'a'")


if __name__ == "__main__":
    tf.test.main()
