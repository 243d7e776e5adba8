import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.layout import flat_content
from etcmodel.feature_utils.layout.spec import Blocks
from etcmodel.feature_utils.layout.spec import GlobalToken
from etcmodel.feature_utils.layout.spec import LayoutSpec
from etcmodel.feature_utils.layout.spec import Link
from etcmodel.feature_utils.layout.spec import Section
from etcmodel.feature_utils.layout.spec import Value


class SectionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (dict(), (1, 0, 0, 0)),
        (dict(token_global=GlobalToken(3)), (1, 1, 0, 0)),
        (dict(unit_global=GlobalToken(1)), (1, 0, 1, 0)),
        (
            dict(unit_global=GlobalToken(1), group_global=GlobalToken(5)),
            (1, 0, 1, 1),
        ),
        # The tokens are in the global input only. 0 is a valid token id.
        (dict(token_global=GlobalToken(0), in_long=False), (0, 1, 0, 0)),
    )
    def test_costs(self, kwargs, expected):
        costs = Section("x", **kwargs).costs
        self.assertEqual(flat_content.Costs(*expected), costs)

    @parameterized.parameters(
        ("keep", None, 0),
        ("tail", None, 1),
        ("fit", None, 1),
        ("balanced", None, 1),
        ("keep", 2, 2),
        ("balanced", 0, 0),
    )
    def test_rank(self, cut, priority, expected):
        section = Section("x", cut=cut, priority=priority)
        self.assertEqual(expected, section.rank)

    @parameterized.parameters(
        *{
            "is 'head', .*'balanced', 'fit', 'keep', 'tail', 'windows'": dict(
                cut="head"
            ),
            r"\['fit', 'tail'\] for whole='gro": dict(
                cut="keep", whole="group"
            ),
            r"\('group', 'unit'\) for whole='word'": dict(whole="word"),
            "max_tokens limits tokens": dict(in_long=False, max_tokens=5),
            "'windows' needs in_long=True": dict(cut="windows", in_long=False),
            "Leave out priority and max_units": dict(
                cut="windows", max_units=3
            ),
            "Leave out priority": dict(cut="windows", priority=3),
            "stride is 0, expected at least 1": dict(cut="windows", stride=0),
            "stride and share_last_global need cut='wind": dict(stride=3),
            "but cut is 'tail'": dict(share_last_global=True),
            "and max_units": dict(cut="windows", max_units=0),
            "share_last_global needs unit_global": dict(
                cut="windows",
                share_last_global=True,
                unit_global=GlobalToken(1),
                group_global=GlobalToken(1),
            ),
        }.items()
    )
    def test_errors(self, message, attributes):
        with self.assertRaisesRegex(ValueError, f"Section 'x': .*{message}"):
            Section("x", **attributes)

    def test_valid_sections(self):
        # `max_units` applies to sections outside of the long input, too.
        Section("ids", in_long=False, max_units=5)
        Section("x", cut="windows", stride=3, max_tokens=5)
        self.assertEqual(float("inf"), Section("x", cut="windows").rank)


SECTIONS = (
    Section("title", unit_global=GlobalToken(1)),
    Section("text", group_global=GlobalToken(5), token_global=GlobalToken(3)),
)


class LayoutSpecTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        *{
            "level is 'word'.*'group', 'unit', 'token'": dict(level="word"),
            "target_level is 'word'": dict(target_level="word"),
            "source is 'both'.*'long', 'global'": dict(source="both"),
            "number is 0, expected at least 1": dict(number=0),
            "back_label needs source": dict(back_label="from"),
            "opens_hard_masks needs source": dict(
                source="global", opens_hard_masks=True
            ),
        }.items()
    )
    def test_errors_of_links(self, message, attributes):
        with self.assertRaisesRegex(ValueError, f"Link 'x': .*{message}"):
            Link("x", "text", "title", **attributes)

    @parameterized.parameters(
        *{
            "level is 'word'": dict(level="word"),
            r"is <int32>\[\]. Expected a vector": dict(embed=True),
            r"<string>\[2\]": dict(embed=True, dtype=tf.string, shape=(2,)),
            r"<int32>\[2, 2\]": dict(embed=(), shape=(2, 2)),
            "values padded with 0": dict(embed=True, shape=(2,), pad=1),
            r"\['global'\]. Expected inputs from \['long'\]": dict(
                embed=["global"], shape=(2,)
            ),
        }.items()
    )
    def test_errors_of_values(self, message, attributes):
        with self.assertRaisesRegex(ValueError, f"Value 'x'.*{message}"):
            Value("x", "text", **attributes)

    @parameterized.parameters(
        *{
            "at least one section without constant": dict(sections=()),
            "Sections must have different names, got .'title', 'title'": dict(
                sections=[SECTIONS[0]] * 2
            ),
            "Several sections have cut='windows'": dict(
                sections=[Section(x, cut="windows") for x in "ab"]
            ),
            "Link 'x': the section 'page' does not .*'title', 'text'": dict(
                links=[Link("x", "page", "title")]
            ),
            "Link 'x': a group of 'title' has no global token": dict(
                links=[Link("x", "text", "title", "group")]
            ),
            "Value 'x': a token of 'title' has no global token": dict(
                values=[Value("x", "title", "token", source="global")]
            ),
            "Link 'y': the feature 'f' already exists with other at": dict(
                links=[
                    Link("x", "text", "title", feature="f"),
                    Link("y", "title", "title", feature="f", label="other"),
                ]
            ),
            "Value 'y': 'x' is not in the long input": dict(
                sections=[Section("title"), Section("x", in_long=False)],
                values=[Value("y", "x")],
            ),
            "'visual features' may contain only letters": dict(
                values=[Value("visual features", "text")]
            ),
            "Value 'l2g_linked_ids': l2g_linked_ids must be a link": dict(
                values=[Value("l2g_linked_ids", "text")]
            ),
            "Value 'long_token_ids': .* 'long_token_ids' already": dict(
                values=[Value("long_token_ids", "text")]
            ),
            "Value 'y': the feature 'x' already exists": dict(
                links=[Link("x", "text", "title")],
                values=[Value("y", "text", feature="x")],
            ),
            "Value 'y': the feature 'f' already exists": dict(
                values=[
                    Value(name, "text", shape=(i,), embed=True, feature="f")
                    for name, i in (("x", 2), ("y", 3))
                ]
            ),
            "Link 'x': l2g_linked_ids must be a link of the long input": dict(
                links=[
                    Link(
                        *("x", "title", "title", "unit", "unit", "global"),
                        feature="l2g_linked_ids",
                    )
                ]
            ),
            r"without global tokens.* size 4 and .* \['title', 'text'\]": dict(
                blocks=Blocks(4, GlobalToken(1))
            ),
        }.items()
    )
    def test_errors(self, message, attributes):
        with self.assertRaisesRegex(ValueError, message):
            LayoutSpec(**{"sections": SECTIONS, **attributes})

    def test_encoder_inputs(self):
        spec = LayoutSpec(
            SECTIONS,
            links=[
                Link("names", "text", "title", number=2, label="name"),
                Link("more", "text", "text", "group", opens_hard_masks=True),
                Link(
                    *("refers", "text", "text", "group", "group", "global"),
                    label="refers",
                    back_label="is_referred_to",
                ),
                Link("same", "title", "title", feature="more_2", label="name"),
            ],
            values=[
                Value("starts", "text"),
                Value(
                    *("font", "text", "group", "global", "look"),
                    dtype=tf.float32,
                    shape=(7,),
                    embed=True,
                ),
            ],
        )
        inputs = spec.encoder_inputs
        self.assertEqual(
            [
                ("l2g_linked_ids", "long", None, None, False),
                ("names", "long", "name", None, False),
                ("names_2", "long", "name", None, False),
                ("more", "long", None, None, True),
                ("refers", "global", "refers", "is_referred_to", False),
                ("more_2", "long", "name", None, False),
            ],
            [tuple(x) for x in inputs.links],
        )
        self.assertEqual(["name", "refers", "is_referred_to"], inputs.labels)
        self.assertEqual(
            [("look", "global", (7,), "float32", ("global",))],
            [*inputs.values],
        )
        # A link with the default link's feature replaces the default link.
        own = Link(
            *("own", "text", "title"),
            feature="l2g_linked_ids",
            opens_hard_masks=True,
        )
        self.assertEqual(
            [("l2g_linked_ids", "long", None, None, True)],
            [*LayoutSpec(SECTIONS, [own]).encoder_inputs.links],
        )

    def test_changes(self):
        spec = LayoutSpec(SECTIONS, values=[Value("starts", "text")])
        changed = spec.with_section("text", max_tokens=9)
        self.assertEqual(
            (None, 9), tuple(x.max_tokens for x in changed.sections)
        )
        self.assertEqual(SECTIONS[0], changed.sections[0])
        with self.assertRaisesRegex(
            ValueError, "section 'page' does not .* of .'title'"
        ):
            spec.with_section("page", max_tokens=9)
        self.assertEqual(spec.values, changed.values)
        self.assertEqual(1, spec.index("text"))
        blocks = spec.with_blocks(5, GlobalToken(1))
        self.assertEqual(5, blocks.blocks.size)
        self.assertEqual([{}, {}], [x.global_tokens for x in blocks.sections])


if __name__ == "__main__":
    tf.test.main()
