"""Compares all functions that make side inputs with their definitions."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import feature_utils
from etcmodel.ops import attention
from etcmodel.ops.attention import masks
from etcmodel.ops.attention import relative_ids

RADIUS, MAX_DISTANCE = 3, 2
FIELDS = (
    "l2l_att_mask",
    "g2g_att_mask",
    "l2g_att_mask",
    "g2l_att_mask",
    "l2l_relative_att_ids",
    "g2g_relative_att_ids",
    "l2g_relative_att_ids",
    "g2l_relative_att_ids",
)
# Attributes of links besides their ids.
LINKS = (
    dict(label=1, opens_hard_masks=True),
    dict(source="global", label=0, back_label=2),
    dict(),
    dict(source="global", label=3),
    dict(label=0, opens_hard_masks=True),
    dict(source="global"),
)


def random_features(long_len=11, global_len=5):
    """Draws three rows of texts, ids, links and exemptions.

    The second row is all padding, and the third has no padding. Ids of padding
    may be out of range.
    """
    rng = np.random.default_rng(3)
    rows = []
    for i in range(3):
        number = rng.integers(1, 1 + min(3, long_len, global_len))
        row = {}
        for name, length in (("long", long_len), ("global", global_len)):
            ends = rng.choice(length, 0 if i == 1 else number, replace=False)
            if i == 2 and length - 1 not in ends:
                ends[0] = length - 1
            row[name] = np.isin(np.arange(length), ends)
            row[f"exempt_{name}"] = rng.integers(0, 2, length)
        texts = {x: np.cumsum(row[x][::-1])[::-1] for x in ("long", "global")}
        num_global = np.count_nonzero(texts["global"])

        def draw(source, high=num_global, texts=texts):
            ids = rng.integers(-1, high, len(texts[source]))
            wild = rng.integers(-2, global_len + 2, len(ids))
            return np.where(texts[source] > 0, ids, wild)

        row["paragraphs"], row["links"] = draw("long"), draw("long")
        # A token's sentence is a global token of the token's text.
        row["sentences"] = draw("long")
        is_real = (texts["long"] > 0) & (row["sentences"] >= 0)
        for k in np.flatnonzero(is_real):
            own = np.flatnonzero(texts["global"] == texts["long"][k])
            row["sentences"][k] = rng.choice(own)
        for k, link in enumerate(LINKS):
            row[f"link_{k}"] = draw(link.get("source", "long"))
        rows.append(row)
    return {
        name: np.stack([row[name] for row in rows]).astype(np.int32)
        for name in rows[0]
    }


def make_sentences(features, **kwargs):
    return feature_utils.make_global_local_transformer_side_inputs(
        features["long"],
        features["global"],
        features["sentences"],
        local_radius=RADIUS,
        **kwargs,
    )


def make_blocks(features, **kwargs):
    return feature_utils.make_fixed_block_side_inputs(
        features["long"], 4, local_radius=RADIUS, **kwargs
    )[0]


def make_multihop(features, **kwargs):
    return feature_utils.make_multihop_side_inputs(
        features["long"],
        features["paragraphs"],
        features["sentences"],
        features["global"],
        local_radius=RADIUS,
        ignore_hard_g2l_mask=features["exempt_global"],
        ignore_hard_l2g_mask=features["exempt_long"],
        l2g_linked_ids=features["links"],
        **kwargs,
    )


def make_flat(features, **kwargs):
    return make_multihop(features, flat_sequence=True, **kwargs)


def make_linked(features, **kwargs):
    links = [
        feature_utils.TypedLink(features[f"link_{i}"], **link)
        for i, link in enumerate(LINKS)
    ]
    return make_multihop(features, links=links, **kwargs)


def make_linked_flat(features, **kwargs):
    return make_linked(features, flat_sequence=True, **kwargs)


def _labels(distances):
    """Labels distances: `[-3, -1, 0, 1, 3]` -> `[4, 3, 0, 1, 2]`."""
    clipped = np.minimum(np.abs(distances), MAX_DISTANCE)
    return np.where(distances < 0, MAX_DISTANCE + clipped, clipped)


def expected_row(make, features, hard_l2g, hard_g2l):
    """Computes the eight fields of one row from their definitions."""
    # Contexts are numbered from the end; 0 is padding.
    long_ids, global_ids = (
        np.cumsum(features[name][::-1])[::-1] for name in ("long", "global")
    )
    # Tokens with equal ids attend to each other: `local` ids within the long
    # input, `seen_*` ids across inputs. `contains` has the links that open hard
    # masks.
    local, seen_long, seen_global = long_ids, long_ids, global_ids
    contains = [features["sentences"]]
    if make == make_blocks:
        local = seen_long = features["long"]
        blocks = np.arange(len(local)) // 4
        contains = [blocks]
        seen_global = np.array(
            [local[blocks == i].max() for i in range(blocks[-1] + 1)]
        )
    elif make != make_sentences:
        seen_long, seen_global = long_ids > 0, global_ids > 0
        local = long_ids if make in (make_multihop, make_linked) else seen_long
    linked = contains
    exempt_long, exempt_global = 0 * seen_long, 0 * seen_global
    if make in (make_multihop, make_linked):
        contains = [*contains, features["paragraphs"]]
        linked = [*contains, features["links"]]
        exempt_long, exempt_global = (
            features[f"exempt_{name}"] for name in ("long", "global")
        )
    global_index = np.arange(len(seen_global))
    offsets = np.arange(-RADIUS, RADIUS + 1)
    # [long, 2 * radius + 1]
    keys = np.arange(len(local))[:, np.newaxis] + offsets
    inside = (keys >= 0) & (keys < len(local))
    keys = np.clip(keys, 0, len(local) - 1)
    # [long, global]
    same = seen_long[:, np.newaxis] == seen_global
    contained, is_linked = (
        np.any([ids[:, np.newaxis] == global_index for ids in rows], axis=0)
        for rows in (contains, linked)
    )
    l2g_open = contained | (exempt_long[:, np.newaxis] == 1) | (not hard_l2g)
    g2l_open = contained | (exempt_global == 1) | (not hard_g2l)
    l2g_labels = 2 * MAX_DISTANCE + 1 + is_linked
    # [global, global]
    g2g_labels = _labels(global_index - global_index[:, np.newaxis])
    if make in (make_multihop, make_linked):
        g2g_labels = np.where(
            global_ids == global_ids[:, np.newaxis],
            g2g_labels,
            2 * MAX_DISTANCE + 3,
        )
    if make in (make_linked, make_linked_flat):
        # Later links overwrite earlier ones. Forward links overwrite back
        # links.
        for is_back in (True, False):
            for i, link in enumerate(LINKS):
                label = link.get("label")
                if is_back:
                    label = link.get("back_label", label)
                label = 2 * MAX_DISTANCE + (2 if label is None else 4 + label)
                for source, target in enumerate(features[f"link_{i}"]):
                    if not 0 <= target < len(seen_global):
                        continue
                    if not link.get("source"):
                        l2g_labels[source, target] = label
                    elif is_back:
                        g2g_labels[target, source] = label
                    else:
                        g2g_labels[source, target] = label
                    if link.get("opens_hard_masks"):
                        l2g_open[source, target] = True
                        g2l_open[source, target] = True
    fields = (
        inside & (local[keys] == local[:, np.newaxis]),
        seen_global == seen_global[:, np.newaxis],
        same & l2g_open,
        (same & g2l_open).T,
        np.broadcast_to(_labels(offsets), keys.shape),
        g2g_labels,
        l2g_labels,
        l2g_labels.T,
    )
    return dict(zip(FIELDS, fields, strict=True))


MAKERS = (
    make_sentences,
    make_blocks,
    make_multihop,
    make_flat,
    make_linked,
    make_linked_flat,
)


class SideInputsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_as_defined(self, fields, make, features, **hard):
        self.assertEqual(tuple(fields), FIELDS)
        rows = [
            expected_row(
                make, {name: x[i] for name, x in features.items()}, **hard
            )
            for i in range(3)
        ]
        for name, value in fields.items():
            self.assertEqual(value.dtype, tf.int32, name)
            self.assertAllEqual(value, [row[name] for row in rows], name)

    @parameterized.product(make=MAKERS, hard_l2g=[False, True])
    def test_definition(self, make, hard_l2g):
        options = dict(
            relative_pos_max_distance=MAX_DISTANCE,
            use_hard_l2g_mask=hard_l2g,
            use_hard_g2l_mask=not hard_l2g,
        )
        hard = dict(hard_l2g=hard_l2g, hard_g2l=not hard_l2g)
        features = random_features()
        plain = make(
            {name: x.astype(np.int64) for name, x in features.items()},
            **options,
        ).to_dict()
        self.assert_as_defined(plain, make, features, **hard)
        made = make(features, materialize=False, **options)
        mask = attention.LongGlobalMask
        link_labels = attention.LongGlobalLabels
        for name, kind in (
            ("l2l_att_mask", attention.SegmentMask),
            ("l2g_att_mask", mask),
            ("g2l_att_mask", mask),
            ("l2l_relative_att_ids", attention.DistanceLabels),
            ("l2g_relative_att_ids", link_labels),
            ("g2l_relative_att_ids", link_labels),
        ):
            self.assertIsInstance(getattr(made, name), kind)
        side_mask = masks.pair_mask_tensor
        side_label = relative_ids.pair_label_tensor
        size = plain["g2g_att_mask"].shape[1]
        spelled_out = (
            made.l2l_att_mask.to_band(RADIUS),
            made.g2g_att_mask,
            side_mask(made.l2g_att_mask, False),
            side_mask(made.g2l_att_mask, True),
            made.l2l_relative_att_ids.to_band(3, 11),
            made.g2g_relative_att_ids,
            side_label(made.l2g_relative_att_ids, size, False),
            side_label(made.g2l_relative_att_ids, size, True),
        )
        self.assert_as_defined(
            {
                name: tf.cast(value, tf.int32)
                for name, value in zip(FIELDS, spelled_out, strict=True)
            },
            make,
            features,
            **hard,
        )

    @parameterized.parameters(*MAKERS)
    def test_compiled_for_any_length(self, make):
        @tf.function(
            input_signature=[
                dict.fromkeys(
                    random_features(), tf.TensorSpec([None, None], tf.int32)
                )
            ],
            jit_compile=True,
        )
        def call(features):
            return make(
                features,
                relative_pos_max_distance=MAX_DISTANCE,
                use_hard_l2g_mask=True,
                use_hard_g2l_mask=True,
            ).to_dict()

        for sizes in ((6, 3), (2, 4)):
            features = random_features(*sizes)
            self.assert_as_defined(
                call(features), make, features, hard_l2g=True, hard_g2l=True
            )

    @parameterized.parameters(make_sentences, make_multihop, make_linked)
    def test_known_sizes_stay_static(self, make):
        """With descriptions, no tensor holds all pairs with a long token."""
        options = dict(
            relative_pos_max_distance=MAX_DISTANCE,
            use_hard_l2g_mask=True,
            use_hard_g2l_mask=True,
        )

        @tf.function(
            input_signature=[
                {
                    name: tf.TensorSpec([None, x.shape[1]], tf.int32)
                    for name, x in random_features(11, 5).items()
                }
            ]
        )
        def call(features):
            made = make(features, materialize=False, **options)
            shapes = [
                output.shape.as_list()
                for operation in made.g2g_att_mask.graph.get_operations()
                for output in operation.outputs
                if output.shape.rank is not None
            ]
            self.assertIn([None, 5, 5], shapes)
            self.assertNotIn([None, 11, 7], shapes)
            self.assertNotIn([None, 11, 5], shapes)
            fields = make(features, **options).to_dict()
            self.assertEqual(
                [fields[name].shape.as_list() for name in FIELDS],
                2 * [[None, 11, 7], [None, 5, 5], [None, 11, 5], [None, 5, 11]],
            )
            return fields["l2l_relative_att_ids"]

        # Empty batches are supported.
        empty = {name: x[:0] for name, x in random_features(11, 5).items()}
        self.assertEqual(call(empty).shape, [0, 11, 7])

    @parameterized.product(make=MAKERS, materialize=[False, True])
    def test_without_labels(self, make, materialize):
        made = make(
            random_features(),
            relative_pos_max_distance=0,
            materialize=materialize,
        )
        self.assertEqual(tuple(made.to_dict()), FIELDS)
        self.assertEqual(
            tuple(made.to_dict(exclude_none_values=True)), FIELDS[:4]
        )


if __name__ == "__main__":
    tf.test.main()
