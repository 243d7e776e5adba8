import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import entity_masking

MASK = 13
TEXT = 50


def _text(batch, length):
    """Arguments for plain text: all words are one token, no mentions."""
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
    """As `_text`, with mentions of two tokens each, three tokens apart."""
    begins = np.tile(3 * np.arange(mentions, dtype=np.int32), [batch, 1])
    return _text(batch, 3 * mentions) | {
        "annotation_begins": begins,
        "annotation_ends": begins + 1,
        "annotation_labels": np.broadcast_to(
            np.array(labels, np.int32), [batch, mentions]
        ),
    }


def _random_case(batch, length, mentions):
    """Arguments with all that there is, mentions that overlap among them."""
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
    """The tokens of a mention, as an index of a row."""
    begin = case["annotation_begins"][row, mention]
    return slice(begin, case["annotation_ends"][row, mention] + 1)


def _runs(is_masked):
    """First token, length of every run of masks that ends before the row."""
    padded = np.pad(is_masked.astype(np.int8), [[0, 0], [1, 1]])
    steps = np.diff(padded, axis=1)
    begins, ends = np.nonzero(steps == 1)[1], np.nonzero(steps == -1)[1]
    whole = (begins > 0) & (ends < is_masked.shape[1])
    return begins[whole], (ends - begins)[whole]


class MentionTokenMaskTest(tf.test.TestCase):
    def test_mention_token_mask(self):
        self.assertAllEqual(
            entity_masking.mention_token_mask(
                tf.constant([[1, 4, 0], [0, 2, 0]]),
                tf.constant([[2, 4, 0], [0, 9, 0]]),
                tf.constant([[7, 8, 0], [0, 3, 1]]),
                5,
            ),
            [
                [False, True, True, False, True],
                [True, False, True, True, True],
            ],
        )


class MaskSameEntityMentionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        (
            {
                "token_ids": [13, 1, 2, 13, 4, 5, 6, 7],
                "positions": [0, 3],
                "expected": [13, 1, 2, 13, 4, 13, 13, 13],
            },
            {
                "token_ids": [0, 13, 2, 3, 4, 5, 13, 7],
                "positions": [1, 6],
                "expected": [13, 13, 2, 3, 4, 13, 13, 13],
            },
            {
                "token_ids": [0, 13, 2, 3, 4, 5, 6, 7],
                "positions": [1, 0],
                "expected": [0, 13, 2, 3, 4, 5, 6, 7],
            },
        ),
        across=(False, True),
    )
    def test_golden(self, token_ids, positions, expected, across):
        result = entity_masking.mask_same_entity_mentions(
            tf.constant([token_ids]),
            annotation_begins=[[0, 3, 5]],
            annotation_ends=[[0, 4, 7]],
            annotation_labels=[[100, 0, 100]],
            masked_lm_positions=[positions],
            # The zero of the third case is padding.
            masked_lm_weights=[[1.0, float(positions[1] != 0)]],
            mask_token_id=13,
            apply_across_whole_batch=across,
        )
        self.assertAllEqual(result, [expected])

    # Three segments of four tokens. Entity 5: tokens 0 and 2 of the first, 1
    # of the second and third segment. In the third one, 6: tokens 3. The token
    # 0 of the first segment is masked.
    _ROW = [13, 1, 2, 3]
    _HIDDEN = [13, 1, 13, 3]
    _OTHER = [0, 1, 2, 3]
    _OTHER_HIDDEN = [0, 13, 2, 3]

    @parameterized.parameters(
        (False, None, [_HIDDEN, _OTHER, _OTHER]),
        (False, [0, 0, 0], [_HIDDEN, _OTHER, _OTHER]),
        (True, None, [_HIDDEN, _OTHER_HIDDEN, _OTHER_HIDDEN]),
        (True, [8, 8, 8], [_HIDDEN, _OTHER_HIDDEN, _OTHER_HIDDEN]),
        (True, [8, 9, 8], [_HIDDEN, _OTHER, _OTHER_HIDDEN]),
        (True, [8, 8, 0], [_HIDDEN, _OTHER_HIDDEN, _OTHER]),
        (True, [0, 8, 0], [_ROW, _OTHER, _OTHER]),
    )
    def test_segments(self, across, block_ids, expected):
        result = entity_masking.mask_same_entity_mentions(
            tf.constant([self._ROW, self._OTHER, self._OTHER], tf.int64),
            annotation_begins=tf.constant([[0, 2], [1, 0], [3, 1]], tf.int64),
            annotation_ends=tf.constant([[0, 2], [1, 0], [3, 1]], tf.int64),
            annotation_labels=tf.constant([[5, 5], [5, 0], [6, 5]], tf.int64),
            masked_lm_positions=[[0], [0], [0]],
            masked_lm_weights=[[1], [0], [0]],
            mask_token_id=13,
            apply_across_whole_batch=across,
            block_ids=block_ids,
        )
        self.assertEqual(result.dtype, tf.int64)
        self.assertAllEqual(result, expected)

    @parameterized.parameters(
        # Unknown entities and padding.
        ([1, 1], [0], [13, 1, 2, 3, 4, 5]),
        ([0, 0], [0], [13, 1, 2, 3, 4, 5]),
        # Positions outside of the segment belong to no other segment.
        ([7, 7], [-6], [13, 1, 2, 3, 4, 5]),
        ([7, 7], [6], [13, 1, 2, 3, 4, 5]),
        # The last token of a mention counts, the one behind it does not.
        ([7, 7], [2], [13, 13, 13, 3, 13, 13]),
        ([7, 7], [3], [13, 1, 2, 3, 4, 5]),
        ([7, 7], [5], [13, 13, 13, 3, 13, 13]),
        # Nothing to predict.
        ([7, 7], [], [13, 1, 2, 3, 4, 5]),
    )
    def test_causes(self, labels, positions, expected):
        result = entity_masking.mask_same_entity_mentions(
            [[13, 1, 2, 3, 4, 5]] * 2,
            annotation_begins=[[0, 4]] * 2,
            # The last token of the segment is 5.
            annotation_ends=[[2, 9]] * 2,
            annotation_labels=[labels, [8, 8]],
            masked_lm_positions=np.array([positions, positions], np.int32),
            masked_lm_weights=np.array(
                [[1] * len(positions), [0] * len(positions)], np.int32
            ),
            mask_token_id=13,
            apply_across_whole_batch=True,
        )
        self.assertAllEqual(result, [expected, [13, 1, 2, 3, 4, 5]])

    def test_single_pass(self):
        # 5 is masked, so its mention from 2 to 3 is. That covers a token of 6,
        # which is no reason to mask the mention of 6 at 5.
        result = entity_masking.mask_same_entity_mentions(
            [[13, 1, 2, 3, 4, 5]],
            annotation_begins=[[0, 2, 3, 5]],
            annotation_ends=[[0, 3, 4, 5]],
            annotation_labels=[[5, 5, 6, 6]],
            masked_lm_positions=[[0]],
            masked_lm_weights=[[1]],
            mask_token_id=13,
            apply_across_whole_batch=True,
        )
        self.assertAllEqual(result, [[13, 1, 13, 13, 4, 5]])

    def test_no_mentions(self):
        nothing = np.zeros([1, 0], np.int32)
        result = entity_masking.mask_same_entity_mentions(
            [[13, 1]], nothing, nothing, nothing, [[0]], [[1]], 13, True
        )
        self.assertAllEqual(result, [[13, 1]])

    def test_compiled(self):
        @tf.function(jit_compile=True)
        def mask(labels):
            return entity_masking.mask_same_entity_mentions(
                tf.constant([[13, 1, 2], [0, 1, 2]]),
                annotation_begins=[[0, 2], [0, 1]],
                annotation_ends=[[0, 2], [0, 2]],
                annotation_labels=labels,
                masked_lm_positions=[[0], [0]],
                masked_lm_weights=[[1], [0]],
                mask_token_id=13,
                apply_across_whole_batch=True,
            )

        self.assertAllEqual(
            mask(tf.constant([[2**31 - 1, 9], [9, 2**31 - 1]])),
            [[13, 1, 2], [0, 13, 13]],
        )

    def test_needs_a_matrix(self):
        with self.assertRaisesRegex(ValueError, "token_ids.*rank 1"):
            entity_masking.mask_same_entity_mentions(
                [13], [[0]], [[0]], [[7]], [[0]], [[1]], 13, False
            )


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
        is_target = entity_masking.mask_tokens(
            **_text(4000, 100), **options
        ).is_target.numpy()
        # Rows are independent of each other, the words of a row are not.
        self.assert_mean(
            is_target.mean(axis=1), options.get("mlm_fraction_to_mask", 0.15)
        )

    @parameterized.parameters(1, 3, 8)
    def test_every_place_in_a_segment(self, length):
        is_target = entity_masking.mask_tokens(
            **_text(40000, length)
        ).is_target.numpy()
        for place in range(length):
            self.assert_mean(is_target[:, place], 0.15)

    def test_longer_words(self):
        case = _text(20000, 9)
        case["is_continuation"][:] = [0, 1, 0, 0, 1, 1, 1, 0, 1]
        is_target = entity_masking.mask_tokens(**case).is_target.numpy()
        for word in (0, 2, 3, 7):
            self.assert_mean(is_target[:, word], 0.15)

    @parameterized.parameters({}, {"mlm_entity_fraction_to_mask": 0.6})
    def test_mentions(self, **options):
        expected = options.get("mlm_entity_fraction_to_mask", 0.25)
        is_target = entity_masking.mask_tokens(
            **_with_mentions(8000, 4, [1, 7, 7, 0]), **options
        ).is_target.numpy()
        chosen = is_target[:, 0:9:3]
        for mention in range(3):
            self.assert_mean(chosen[:, mention], expected)
        # One says nothing about another.
        self.assert_mean(chosen[:, 1] & chosen[:, 2], expected**2)
        # What is between mentions, and what belongs to none that is there.
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
        # Runs are so rare that hardly any two meet.
        is_target = entity_masking.mask_tokens(
            **_text(5000, 400), mlm_fraction_to_mask=0.002
        ).is_target.numpy()
        begins, lengths = _runs(is_target)
        # 0.002 of 2 million words, three at a time.
        self.assertBetween(len(lengths), 1100, 1500)
        counts = np.bincount(lengths, minlength=6)
        self.assertLess(counts[6:].sum(), 0.02 * len(lengths))
        error = np.sqrt(len(lengths) * 0.2 * 0.8)
        self.assertAllClose(
            counts[1:6], [len(lengths) / 5] * 5, rtol=0, atol=4 * error
        )
        # They begin anywhere.
        self.assertAllClose(
            np.mean(begins), 200, rtol=0, atol=4 * 400 / np.sqrt(12 * 1100)
        )

    def test_counted_in_words(self):
        # All words are two tokens.
        case = _text(2000, 200)
        case["is_continuation"][:, 1::2] = 1
        is_target = entity_masking.mask_tokens(
            **case, mlm_fraction_to_mask=0.004, mlm_max_consecutive_masks=2
        ).is_target.numpy()
        begins, lengths = _runs(is_target)
        self.assertAllEqual(begins % 2, 0 * begins)
        counts = np.bincount(lengths)
        self.assertAllEqual(counts[1::2], 0 * counts[1::2])
        self.assertLess(counts[5:].sum(), 0.02 * len(lengths))
        error = np.sqrt(len(lengths) / 4)
        self.assertAllClose(
            counts[[2, 4]], [len(lengths) / 2] * 2, rtol=0, atol=4 * error
        )

    def test_go_on_behind_mentions(self):
        # Four words, of which the inner two are a mention, which is never
        # chosen. Each word begins a run of up to four with q = 0.01.
        case = _text(40000, 4)
        case["annotation_begins"][:] = 1
        case["annotation_ends"][:] = 2
        case["annotation_labels"][:] = 9
        first_stays = 0.9975 * 0.995 * 0.9925 * 0.99
        is_target = entity_masking.mask_tokens(
            **case,
            mlm_fraction_to_mask=1 - first_stays,
            mlm_entity_fraction_to_mask=0,
            mlm_max_consecutive_masks=4,
        ).is_target.numpy()
        self.assertFalse(is_target[:, 1:3].any())
        # The last word stays, too, if no run from the second word on reaches
        # it; runs from further left reach the first word if they reach the
        # last one. If runs ended at mentions, the two words were independent
        # and both masked with 0.0006 instead of 0.003.
        both_stay = first_stays * 0.995 * 0.9925 * 0.99
        both = is_target[:, 0] & is_target[:, 3]
        self.assert_mean(both, 1 - 2 * first_stays + both_stay)


class MaskTokensTest(tf.test.TestCase, parameterized.TestCase):
    def test_whole_words(self):
        case = _random_case(300, 80, 1)
        case["annotation_labels"][:] = 0
        case["is_text"][:] = True
        is_target = entity_masking.mask_tokens(
            **case, mlm_fraction_to_mask=0.4
        ).is_target.numpy()
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

    @parameterized.parameters(*entity_masking.MENTION_MASK_MODES)
    def test_text_only(self, mode):
        case = _random_case(100, 60, 5)
        masked = entity_masking.mask_tokens(
            **case,
            mlm_fraction_to_mask=0.7,
            mlm_entity_fraction_to_mask=0.7,
            mention_mask_mode=mode,
        )
        is_text = case["is_text"]
        self.assertAllEqual(
            masked.token_ids.numpy()[~is_text], case["token_ids"][~is_text]
        )
        self.assertFalse(masked.is_target.numpy()[~is_text].any())
        self.assertGreater(masked.is_target.numpy()[is_text].mean(), 0.6)

    def test_mentions_as_a_whole(self):
        # Mentions of five tokens in all ways that words may be cut.
        case = _random_case(200, 60, 3)
        case["annotation_begins"][:] = [3, 20, 40]
        case["annotation_ends"][:] = [7, 24, 44]
        case["annotation_labels"][:] = [1, 7, 7]
        case["is_text"][:, 22] = False
        is_target = entity_masking.mask_tokens(**case).is_target.numpy()
        for row in range(200):
            for mention in range(3):
                tokens = _tokens_of(case, row, mention)
                inside = is_target[row, tokens][case["is_text"][row, tokens]]
                self.assertLen(set(inside), 1)

    def test_overlapping_mentions(self):
        case = _with_mentions(500, 2, [7, 8])
        case["annotation_begins"] = np.full([500, 2], [0, 2], np.int32)
        case["annotation_ends"] = np.full([500, 2], [2, 4], np.int32)
        is_target = entity_masking.mask_tokens(
            **case, mlm_fraction_to_mask=0
        ).is_target.numpy()
        # Neither, the first, the second and both.
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
        ("whole_entity", None),
        ("whole_entity", [1, 1, 2] * 20),
        ("whole_entity_batch", None),
        ("whole_entity_batch", [1, 2, 2, 3, 3, 0] * 10),
        ("whole_entity_batch", list(range(1, 61))),
    )
    def test_modes(self, mode, block_ids):
        batch, mentions = 60, 6
        # Many entities, so that some are not chosen in all of the batch.
        labels = np.random.default_rng(1).integers(0, 300, [batch, mentions])
        labels[:, 0] = 1
        labels[::2, 4] = labels[::2, 5]
        case = _with_mentions(batch, mentions, labels)
        case["mlm_entity_fraction_to_mask"] = 0.2
        masked = entity_masking.mask_tokens(
            **case, mention_mask_mode=mode, block_ids=block_ids
        )
        plain = entity_masking.mask_tokens(**case)
        # What is to be predicted is the same in all modes.
        self.assertAllEqual(masked.is_target, plain.is_target)

        documents = block_ids or [1] * batch
        if mode == "whole_entity":
            documents = range(1, batch + 1)
        is_target = plain.is_target.numpy()
        places = [(r, m) for r in range(batch) for m in range(mentions)]
        chosen = {
            (documents[row], labels[row, mention])
            for row, mention in places
            if labels[row, mention] > 1
            and is_target[row, _tokens_of(case, row, mention)].all()
        }
        is_masked = is_target.copy()
        for row, mention in places:
            key = (documents[row], labels[row, mention])
            if mode != "whole_mention" and documents[row] and key in chosen:
                is_masked[row, _tokens_of(case, row, mention)] = True
        self.assertAllEqual(
            masked.token_ids, np.where(is_masked, MASK, case["token_ids"])
        )
        # The case is one in which the mode matters.
        hidden = np.sum(is_masked & ~is_target)
        self.assertEqual(hidden > 0, mode != "whole_mention")
        known = np.isin(labels, [0, 1], invert=True)
        self.assertLess(len(chosen), len(np.unique(labels[known])))

    def test_seed(self):
        case = _random_case(50, 60, 5)
        first = entity_masking.mask_tokens(**case)
        again = entity_masking.mask_tokens(**case)
        self.assertAllEqual(first.token_ids, again.token_ids)
        self.assertAllEqual(first.is_target, again.is_target)
        for seed in ([3, 5], [4, 4]):
            other = entity_masking.mask_tokens(**(case | {"seed": seed}))
            # Nothing in common but chance, for mentions and other words.
            both = np.logical_and(first.is_target, other.is_target).mean()
            either = np.mean(first.is_target) * np.mean(other.is_target)
            self.assertLess(both, 1.4 * either)

    @parameterized.product(
        mode=entity_masking.MENTION_MASK_MODES, compiled=(False, True)
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
        ({"mlm_entity_fraction_to_mask": 1}, "mlm_entity_fraction.* is 1;"),
        ({"mlm_max_consecutive_masks": 0}, "mlm_max_consecutive_masks is 0"),
    )
    def test_errors(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            entity_masking.mask_tokens(**_text(1, 2), **options)


if __name__ == "__main__":
    tf.test.main()
