import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import entity_masking

MASK = 13
TEXT = 50


def _text(batch, length):
    """Returns arguments for text without mentions, one token per word."""
    return {
        "token_ids": np.full([batch, length], TEXT, np.int32),
        "is_continuation": np.zeros([batch, length], np.int32),
        "is_text": np.ones([batch, length], bool),
        "annotation_begins": np.zeros([batch, 1], np.int32),
        "annotation_ends": np.zeros([batch, 1], np.int32),
        "annotation_labels": np.zeros([batch, 1], np.int32),
        "mask_token_id": MASK,
        "seed": [1, 2],
    }


def _with_mentions(batch, mentions, labels):
    """Adds mentions to `_text`: tokens 0 and 1, tokens 3 and 4, and so on."""
    begins = np.tile(3 * np.arange(mentions, dtype=np.int32), [batch, 1])
    return _text(batch, 3 * mentions) | {
        "annotation_begins": begins,
        "annotation_ends": begins + 1,
        "annotation_labels": np.broadcast_to(
            np.array(labels, np.int32), [batch, mentions]
        ),
    }


def _random_case(batch, length, mentions):
    """Returns random arguments, in which some mentions overlap."""
    rng = np.random.default_rng(0)
    begins = rng.integers(0, length, [batch, mentions])
    ends = np.minimum(begins + rng.integers(0, 4, begins.shape), length - 1)
    is_text = rng.random([batch, length]) < 0.9
    is_text[:, 0] = False
    is_continuation = rng.random([batch, length]) < 0.4
    is_continuation[:, 0] = False
    return {
        "token_ids": rng.integers(20, 99, [batch, length]).astype(np.int32),
        "is_continuation": is_continuation.astype(np.int32),
        "is_text": is_text,
        "annotation_begins": begins.astype(np.int32),
        "annotation_ends": ends.astype(np.int32),
        "annotation_labels": rng.integers(0, 7, begins.shape).astype(np.int32),
        "mask_token_id": MASK,
        "seed": [3, 4],
    }


def _tokens_of(case, row, mention):
    """Returns the tokens of a mention as an index into a row."""
    begin = case["annotation_begins"][row, mention]
    return slice(begin, case["annotation_ends"][row, mention] + 1)


def _hidden(case, is_masked, mode, block_ids):
    """Marks tokens that a mode masks besides the chosen ones, in Python."""
    batch = len(is_masked)
    documents = block_ids or [1] * batch
    if mode != "whole_entity_batch":
        documents = range(1, batch + 1)
    labels = case["annotation_labels"]
    # Pairs: a known entity, and the place of one of its mentions.
    mentions = [
        ((documents[row], labels[row, i]), (row, _tokens_of(case, row, i)))
        for row, i in np.ndindex(labels.shape)
        if documents[row] and labels[row, i] > 1
    ]
    causes = {entity for entity, place in mentions if is_masked[place].any()}
    is_hidden = np.zeros_like(is_masked)
    for entity, place in mentions:
        is_hidden[place] |= mode != "whole_mention" and entity in causes
    return is_hidden


def _targets(*args, **kwargs):
    """Returns the tokens to predict, `<bool>[batch, length]`."""
    return entity_masking.mask_tokens(*args, **kwargs).is_target.numpy()


def _runs(is_masked):
    """Returns start and length of each run with unmasked tokens around it."""
    padded = np.pad(is_masked.astype(np.int8), [[0, 0], [1, 1]])
    steps = np.diff(padded, axis=1)
    begins, ends = np.nonzero(steps == 1)[1], np.nonzero(steps == -1)[1]
    whole = (begins > 0) & (ends < is_masked.shape[1])
    return begins[whole], (ends - begins)[whole]


class MaskSameEntityMentionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("0 13 2 3 4 5 13 7", [1, 6], "13 13 2 3 4 13 13 13"),
        # Position 0 has weight 0, so it is padding.
        ("0 13 2 3 4 5 6 7", [1, 0], "0 13 2 3 4 5 6 7"),
    )
    def test_golden(self, tokens, positions, expected):
        result = entity_masking.mask_same_entity_mentions(
            [[int(x) for x in tokens.split()]],
            annotation_begins=[[0, 3, 5]],
            annotation_ends=[[0, 4, 7]],
            annotation_labels=[[100, 0, 100]],
            masked_lm_positions=[positions],
            masked_lm_weights=[[1.0, float(positions[1] != 0)]],
            mask_token_id=13,
            apply_across_whole_batch=True,
        )
        self.assertAllEqual(result, [[int(x) for x in expected.split()]])

    @parameterized.parameters("whole_entity", "whole_entity_batch")
    def test_random_against_python(self, mode):
        case = _random_case(40, 20, 4)
        rng = np.random.default_rng(1)
        # Some labels are unique, some are unknown (1), and one is very large.
        labels = rng.integers(0, 40, [40, 4]).astype(np.int32)
        labels = np.where(labels == 39, 2**31 - 1, labels // 2)
        case["annotation_labels"] = labels
        # Some mentions end beyond their segment; some positions are beyond it.
        case["annotation_ends"][::5, 0] = 25
        positions = rng.integers(-9, 29, [40, 3])
        weights = rng.integers(0, 2, positions.shape)
        is_masked = np.zeros([40, 20], bool)
        for place in np.ndindex(positions.shape):
            if weights[place] and 0 <= positions[place] < 20:
                is_masked[place[0], positions[place]] = True
        ids = np.where(is_masked, MASK, case["token_ids"]).astype(np.int64)
        result = entity_masking.mask_same_entity_mentions(
            ids,
            *(case[f"annotation_{x}"] for x in ("begins", "ends", "labels")),
            positions,
            weights,
            MASK,
            apply_across_whole_batch=mode == "whole_entity_batch",
        )
        self.assertEqual(result.dtype, tf.int64)
        is_hidden = _hidden(case, is_masked, mode, None)
        self.assertGreater(np.sum(is_hidden & ~is_masked), 20)
        self.assertAllEqual(result, np.where(is_hidden, MASK, ids))

    def test_nothing(self):
        nothing = np.zeros([1, 0], np.int32)
        mask = entity_masking.mask_same_entity_mentions
        ids = [[13, 1]]
        mentions, predictions = [nothing] * 3, [[[0]], [[1]]]
        self.assertAllEqual(mask(ids, *mentions, *predictions, 13, True), ids)
        mentions, predictions = [[[0]], [[1]], [[7]]], [nothing] * 2
        self.assertAllEqual(mask(ids, *mentions, *predictions, 13, True), ids)
        with self.assertRaisesRegex(ValueError, "token_ids.*rank 1"):
            mask([13], *mentions, *predictions, 13, False)


class _RandomTest(tf.test.TestCase, parameterized.TestCase):
    def assert_mean(self, values, expected):
        """Checks the mean of independent values against an expectation."""
        error = np.std(values) / np.sqrt(np.size(values))
        self.assertAllClose(np.mean(values), expected, rtol=0, atol=4 * error)


class RatesTest(_RandomTest):
    @parameterized.parameters(
        {},
        {"mlm_max_consecutive_masks": 1},
        {"mlm_fraction_to_mask": 0.6, "mlm_max_consecutive_masks": 3},
        {"mlm_fraction_to_mask": 0.02, "mlm_max_consecutive_masks": 20},
    )
    def test_words(self, **options):
        is_target = _targets(**_text(2000, 100), **options)
        # Only the rows are independent, not the words in a row.
        self.assert_mean(
            is_target.mean(axis=1), options.get("mlm_fraction_to_mask", 0.15)
        )

    @parameterized.parameters("0", "000", "00000000", "010011101")
    def test_every_place_in_a_segment(self, continues):
        """Uses words of one token and of several tokens."""
        case = _text(20000, len(continues))
        case["is_continuation"][:] = [int(x) for x in continues]
        is_target = _targets(**case)
        for place in range(len(continues)):
            self.assert_mean(is_target[:, place], 0.15)

    @parameterized.parameters({}, {"mlm_entity_fraction_to_mask": 0.6})
    def test_mentions(self, **options):
        expected = options.get("mlm_entity_fraction_to_mask", 0.25)
        is_target = _targets(**_with_mentions(8000, 4, [1, 7, 7, 0]), **options)
        chosen = is_target[:, 0:9:3]
        for mention in range(3):
            self.assert_mean(chosen[:, mention], expected)
        # Mentions are chosen independently.
        self.assert_mean(chosen[:, 1] & chosen[:, 2], expected**2)
        # Tokens between mentions, and tokens of a mention that is padding.
        for word in (2, 5, 8, 9, 10, 11):
            self.assert_mean(is_target[:, word], 0.15)

    def test_nothing(self):
        case = _random_case(50, 60, 5)
        masked = entity_masking.mask_tokens(
            **case,
            mlm_fraction_to_mask=0,
            mlm_entity_fraction_to_mask=0,
            mention_mask_mode="whole_entity_batch",
        )
        self.assertAllEqual(masked.token_ids, case["token_ids"])
        self.assertFalse(np.any(masked.is_target))


class RunsTest(_RandomTest):
    def test_lengths(self):
        """Run lengths count words, which have two tokens here."""
        case = _text(5000, 800)
        case["is_continuation"][:, 1::2] = 1
        # Runs are so rare that hardly any two are adjacent.
        begins, lengths = _runs(_targets(**case, mlm_fraction_to_mask=0.002))
        # 0.002 of 2 million words are masked, in runs of three words on
        # average.
        self.assertBetween(len(lengths), 1100, 1500)
        self.assertAllEqual(begins % 2, 0 * begins)
        counts = np.bincount(lengths, minlength=12)
        self.assertAllEqual(counts[1::2], 0 * counts[1::2])
        self.assertLess(counts[11:].sum(), 0.02 * len(lengths))
        error = np.sqrt(len(lengths) * 0.2 * 0.8)
        self.assertAllClose(
            counts[2:11:2], [len(lengths) / 5] * 5, rtol=0, atol=4 * error
        )

    def test_runs_continue_across_mentions(self):
        # Four words; the inner two are a mention that is never chosen. Each
        # word begins a run of up to four words with q = 0.01.
        case = _text(40000, 4)
        case["annotation_begins"][:] = 1
        case["annotation_ends"][:] = 2
        case["annotation_labels"][:] = 9
        first_stays = 0.9975 * 0.995 * 0.9925 * 0.99
        is_target = _targets(
            **case,
            mlm_fraction_to_mask=1 - first_stays,
            mlm_entity_fraction_to_mask=0,
            mlm_max_consecutive_masks=4,
        )
        self.assertFalse(is_target[:, 1:3].any())
        # Runs that begin at the first word or before it and reach the last word
        # reach the first word, too. So if the first word is unmasked, the last
        # word is unmasked unless a run from a later word reaches it. If runs
        # ended at mentions, the two words would be independent, and both would
        # be masked with probability 0.0006 instead of 0.003.
        both_stay = first_stays * 0.995 * 0.9925 * 0.99
        both = is_target[:, 0] & is_target[:, 3]
        self.assert_mean(both, 1 - 2 * first_stays + both_stay)


class MaskTokensTest(tf.test.TestCase, parameterized.TestCase):
    def test_whole_words(self):
        case = _random_case(300, 80, 1)
        case["annotation_labels"][:] = 0
        case["is_text"][:] = True
        is_target = _targets(**case, mlm_fraction_to_mask=0.4)
        continues = case["is_continuation"][:, 1:] == 1
        self.assertAllEqual(
            is_target[:, 1:][continues], is_target[:, :-1][continues]
        )
        differ = np.mean(is_target[:, 1:] != is_target[:, :-1])
        self.assertGreater(differ, 0.05)

    def test_result(self):
        case = _random_case(100, 60, 5)
        masked = entity_masking.mask_tokens(**case)
        self.assertEqual(masked.token_ids.dtype, tf.int32)
        self.assertAllEqual(
            masked.token_ids,
            np.where(masked.is_target, MASK, case["token_ids"]),
        )
        # [batch, length]
        covers = np.zeros([100, 60], int)
        for row in range(100):
            for mention in np.nonzero(case["annotation_labels"][row])[0]:
                covers[row, _tokens_of(case, row, mention)] += 1
        self.assertAllEqual(masked.is_entity, covers > 0)

    def test_mentions_as_a_whole(self):
        # Mentions of five tokens, which are split into words in all ways.
        case = _random_case(200, 60, 3)
        case["annotation_begins"][:] = [3, 20, 40]
        case["annotation_ends"][:] = [7, 24, 44]
        case["annotation_labels"][:] = [1, 7, 7]
        case["is_text"][:, 22] = False
        is_target = _targets(**case)
        for row in range(200):
            for mention in range(3):
                tokens = _tokens_of(case, row, mention)
                inside = is_target[row, tokens][case["is_text"][row, tokens]]
                self.assertLen(set(inside), 1)

    def test_overlapping_mentions(self):
        case = _with_mentions(500, 2, [7, 8])
        case["annotation_begins"] = np.full([500, 2], [0, 2], np.int32)
        case["annotation_ends"] = np.full([500, 2], [2, 4], np.int32)
        is_target = _targets(**case, mlm_fraction_to_mask=0)
        # No mention, the second, the first, or both mentions are masked.
        self.assertAllEqual(
            np.unique(is_target, axis=0).astype(int),
            [
                [0, 0, 0, 0, 0, 0],
                [0, 0, 1, 1, 1, 0],
                [1, 1, 1, 0, 0, 0],
                [1, 1, 1, 1, 1, 0],
            ],
        )

    @parameterized.parameters(
        ("whole_mention", None),
        ("whole_entity", [1, 1, 2] * 20),
        ("whole_entity_batch", None),
        ("whole_entity_batch", [1, 2, 2, 3, 3, 0] * 10),
    )
    def test_modes(self, mode, block_ids):
        case = _random_case(60, 60, 5)
        # With so many entities, some have no masked token in the whole batch.
        labels = np.random.default_rng(1).integers(0, 300, [60, 5])
        labels[:, 0] = 1
        labels[::2, 3] = labels[::2, 4]
        case["annotation_labels"] = labels
        masked = entity_masking.mask_tokens(
            **case, mention_mask_mode=mode, block_ids=block_ids
        )
        # The targets are the same in all modes.
        is_target = _targets(**case)
        self.assertAllEqual(masked.is_target, is_target)
        self.assertFalse(is_target[~case["is_text"]].any())
        is_hidden = _hidden(case, is_target, mode, block_ids) & case["is_text"]
        self.assertAllEqual(
            masked.token_ids,
            np.where(is_target | is_hidden, MASK, case["token_ids"]),
        )
        # The modes give different masks for this input.
        hidden = np.sum(is_hidden & ~is_target)
        self.assertEqual(hidden > 0, mode != "whole_mention")

    def test_seed(self):
        case = _random_case(50, 60, 5)
        first = entity_masking.mask_tokens(**case)
        again = entity_masking.mask_tokens(**case)
        self.assertAllEqual(first.token_ids, again.token_ids)
        self.assertAllEqual(first.is_target, again.is_target)
        for seed in ([3, 5], [4, 4]):
            other = entity_masking.mask_tokens(**(case | {"seed": seed}))
            # With another seed, other mentions and other words are masked.
            both = np.logical_and(first.is_target, other.is_target).mean()
            either = np.mean(first.is_target) * np.mean(other.is_target)
            self.assertLess(both, 1.4 * either)

    @parameterized.parameters(
        ("whole_entity", False), ("whole_entity_batch", True)
    )
    def test_graph(self, mode, compiled):
        case = _random_case(6, 30, 4)
        case.pop("mask_token_id")
        case["seed"] = np.array(case["seed"], np.int32)
        case["block_ids"] = np.array([1, 1, 2, 3, 3, 0], np.int32)
        options = {"mask_token_id": MASK, "mention_mask_mode": mode}

        @tf.function(jit_compile=compiled)
        def mask(tensors):
            masked = entity_masking.mask_tokens(**tensors, **options)
            if not compiled:
                self.assertEqual(masked.token_ids.shape.as_list(), [None] * 2)
            return masked

        tensors = tf.nest.map_structure(tf.constant, case)
        if not compiled:
            specs = {
                name: tf.TensorSpec([None] * x.shape.rank, x.dtype)
                for name, x in tensors.items()
            }
            mask = mask.get_concrete_function(specs)
        expected = entity_masking.mask_tokens(**case, **options)
        for actual, wanted in zip(mask(tensors), expected, strict=True):
            self.assertAllEqual(actual, wanted)

    @parameterized.parameters(
        ({"mention_mask_mode": "entity"}, "'entity'.*'whole_entity_batch'"),
        ({"mlm_fraction_to_mask": 1.0}, "mlm_fraction_to_mask is 1.0"),
        ({"mlm_fraction_to_mask": -0.1}, "mlm_fraction_to_mask is -0.1"),
        ({"mlm_entity_fraction_to_mask": 1}, "mlm_entity_fraction.* is 1."),
        ({"mlm_max_consecutive_masks": 0}, "mlm_max_consecutive_masks is 0"),
        ({"token_ids": [TEXT, TEXT]}, "token_ids.*rank 1"),
    )
    def test_errors(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            entity_masking.mask_tokens(**(_text(1, 2) | options))


if __name__ == "__main__":
    tf.test.main()
