"""Tests of inputs, estimates, steps, cases and the plot."""

import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import gemm_floor
from benchmarks import harness
from benchmarks import layer
from benchmarks import program


class SideInputsTest(tf.test.TestCase):
    @staticmethod
    def sizes(long_length):
        return gemm_floor.Sizes(2, long_length, 6, 2, 4, 7, 32, 12)

    def test_sentences_and_padding(self):
        side_inputs = harness.make_side_inputs("tensors", self.sizes(64))
        # 57 tokens in sentences of 27: three of six global tokens exist.
        linked = side_inputs["l2g_relative_att_ids"] == 26
        self.assertAllEqual(
            tf.reduce_sum(tf.cast(linked, tf.int32), 1),
            2 * [[27, 27, 3, 0, 0, 0]],
        )
        mask = side_inputs["g2l_att_mask"]
        self.assertAllEqual(tf.reduce_sum(mask[:, :3], 2), 2 * [3 * [57]])
        self.assertAllEqual(tf.reduce_sum(mask[:, 3:], 2), 2 * [3 * [7]])
        # Longer sentences where there are too few global tokens.
        side_inputs = harness.make_side_inputs("tensors", self.sizes(500))
        linked = side_inputs["l2g_relative_att_ids"] == 26
        self.assertAllEqual(
            tf.reduce_sum(tf.cast(linked, tf.int32), 1), 2 * [6 * [75]]
        )

    def test_ids_of_specs_are_no_constants(self):
        specs = harness.make_side_inputs("specs", self.sizes(500))
        use = tf.function(lambda: specs["l2g_att_mask"].to_tensor())
        graph = use.get_concrete_function().graph
        mask = specs["l2g_att_mask"]
        self.assertEqual(
            [id(captured) for captured, _ in graph.captures],
            [id(mask.long_ids), id(mask.global_ids)],
        )
        for operation in graph.get_operations():
            if operation.type == "Const":
                self.assertLess(operation.outputs[0].shape.num_elements(), 13)


class CaseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # 4 arrays of 4 bytes, 12 heads.
        ("dense", 4096, 192e-9 * 4096 * (4096 + 230)),
        ("sparse", 4096, 192e-9 * 49 * 85 * (3 * 85 + 230)),
        ("streaming", 4096, 0),
    )
    def test_gigabytes(self, implementation, length, expected):
        case = harness.Case(
            implementation,
            "tensors",
            "graph",
            "float32",
            "forward",
            gemm_floor.Sizes(1, length, 230, 12, 64, 84, 32, 12),
        )
        self.assertAllClose(harness.stored_gigabytes(case), expected)

    def test_from_flags(self):
        arguments = (
            "--lengths=64,128 --modes=graph --dtypes=mixed_bfloat16 "
            "--passes=train --implementations=sparse,dense --radius=9 "
            "--preset=base_shared"
        )
        values = program.parse(layer.PROGRAM, *arguments.split())
        cases = harness.make_cases(values)
        self.assertEqual(
            [(c.implementation, c.inputs, c.group) for c in cases],
            [
                (*names, (length, "mixed_bfloat16", "train"))
                for length in (64, 128)
                for names in (
                    ("sparse", "specs"),
                    ("sparse", "tensors"),
                    # Once only: it is not the package's.
                    ("dense", "tensors"),
                )
            ],
        )
        for case in cases:
            self.assertEqual(case.preset, "base_shared")
            self.assertEqual(case.compute_dtype, "bfloat16")
            self.assertEqual(case.sizes.radius, 9)
            self.assertEqual(case.sizes.hidden_size, 768)


class StepTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("graph", "xla")
    def test_training(self, mode):
        layer = tf.keras.layers.Dense(2, use_bias=False)
        layer.build((None, 2))
        layer.kernel.assign([[1.0, 2.0], [3.0, 4.0]])
        case = harness.Case(
            "", "tensors", mode, "float32", "train", SideInputsTest.sizes(64)
        )
        x = tf.constant([[1.0, 10.0]])
        step = harness.compile_step(case, lambda x: [layer(x)], [x], layer)
        loss, (input_gradient, kernel_gradient) = step()
        # The constant that the output is multiplied with is the input.
        self.assertAllClose(loss, 31 + 42 * 10)
        self.assertAllClose(input_gradient, [[21, 43]])
        self.assertAllClose(kernel_gradient, [[1, 10], [10, 100]])


class PlotTest(tf.test.TestCase):
    def test_plot(self):
        axes = {"dtype": "float32", "pass": "train"}
        lines = [
            axes
            | {"implementation": name, "inputs": inputs, "mode": mode}
            | {"length": length, **time}
            for name, inputs in (("floor", None), ("a", "tensors"))
            for mode in ("graph", "xla")
            for length, time in (
                *((2, {"median_ms": 1.5}), (4, {"median_ms": 1.5})),
                (8, {}),
            )
        ]
        path = os.path.join(self.get_temp_dir(), "plot.png")
        with mock.patch.object(harness.pyplot, "close", lambda _: None):
            harness.plot(path, "some title", lines)
        figure = harness.pyplot.gcf()
        (legend,) = figure.legends
        self.assertEqual(
            [text.get_text() for text in legend.get_texts()],
            ["floor, graph", "floor, xla", "a, graph", "a, xla"],
        )
        self.assertAllEqual(figure.axes[0].lines[0].get_xdata(), [2, 4])
        harness.pyplot.close(figure)
        with open(path, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")


if __name__ == "__main__":
    tf.test.main()
