"""A function as a layer."""

from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.layers import building


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class TrackedLambda(tf.keras.layers.Layer):
    """A function as a layer, with the variables and layers it uses.

    Args:
        function: what the layer does. It may have a `training` argument.
        dependencies: the variables and layers that `function` uses; their
            weights become those of this layer.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        TypeError: `function` is not callable, or a dependency is a
            `tf.Variable` and this Keras (Keras 3) cannot track those.
    """

    def __init__(
        self,
        function: Callable,
        dependencies: Sequence = (),
        name: str | None = None,
        **kwargs,
    ):
        name = building.default_name(name, "tracked_lambda")
        if isinstance(function, dict):
            function = tf.keras.utils.deserialize_keras_object(function)
        if not callable(function):
            raise TypeError(
                f"{name}: function must be callable, but is "
                f"{type(function).__name__}"
            )
        # Keras reads the signature of `call` in its constructor.
        object.__setattr__(self, "call", function)
        super().__init__(name=name, **kwargs)
        self.function = function
        self.dependencies = list(dependencies)
        for dependency in self.dependencies:
            if isinstance(dependency, tf.Variable) and not any(
                weight is dependency for weight in self.weights
            ):
                raise TypeError(
                    f"{name}: Keras 3 does not track a `tf.Variable` "
                    f"({dependency.name}), which would never be trained or "
                    "saved. Make the variable with the `add_weight` of a layer "
                    "and give that layer, or run with TF_USE_LEGACY_KERAS=1"
                )
        building.track_layers(self, "dependencies")

    def build(self, input_shape):
        """Makes nothing: the dependencies have been made elsewhere."""
        super().build(input_shape)

    def compute_output_shape(self, input_shape):
        """What the function makes of a float input of this shape."""
        function = tf.function(self.function).get_concrete_function(
            tf.TensorSpec(input_shape, self.compute_dtype)
        )
        return tf.nest.map_structure(
            lambda x: tuple(x.shape.as_list()), function.structured_outputs
        )

    def get_config(self):
        """Returns the constructor's arguments.

        Raises:
            NotImplementedError: the function is not registered with
                `register_keras_serializable`, or there are dependencies, which
                cannot be told apart from other layers after saving.
        """
        registered_name = tf.keras.utils.get_registered_name(self.function)
        registered = tf.keras.utils.get_registered_object(registered_name)
        if registered is not self.function or self.dependencies:
            raise NotImplementedError(
                f"{self.name}: only a TrackedLambda without dependencies, of a "
                "function registered with `tf.keras.utils."
                "register_keras_serializable`, has a config. Write a subclass "
                "of `tf.keras.layers.Layer` instead, or save weights only."
            )
        return {
            **super().get_config(),
            "function": tf.keras.utils.serialize_keras_object(self.function),
        }
