"""Small layers: a stack of dense layers, and a function as a layer."""

import inspect
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from etcmodel import tensor_utils
from etcmodel.attention import custom_gradients
from etcmodel.layers import initializers


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class DenseLayers(tf.keras.layers.Layer):
    """Dense layers one after another, without activation after the last.

    Args:
        hidden_sizes: output size of each layer.
        activation: function between the layers, or its Keras name (in which
            "gelu" is the exact form; `etcmodel.activations.gelu` is the form
            of BERT and ETC).
        use_bias: whether the layers have biases.
        kernel_initializer: initializer of the kernels; None for Keras's
            default.
        bias_initializer: initializer of the biases.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: there is no size, or one is below 1.
    """

    def __init__(
        self,
        hidden_sizes: Sequence[int],
        activation=None,
        use_bias: bool = True,
        kernel_initializer=None,
        bias_initializer="zeros",
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        hidden_sizes = list(hidden_sizes)
        if not hidden_sizes or min(hidden_sizes) < 1:
            raise ValueError(
                f"{self.name}: hidden_sizes needs at least one size, and all "
                f"must be at least 1, but it is {hidden_sizes}"
            )
        self.hidden_sizes = hidden_sizes
        self.activation = tf.keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = tf.keras.initializers.get(kernel_initializer)
        self.bias_initializer = tf.keras.initializers.get(bias_initializer)
        self.layers = [
            tf.keras.layers.Dense(
                size,
                use_bias=use_bias,
                kernel_initializer=initializers.clone_kernel(
                    self.kernel_initializer
                ),
                bias_initializer=initializers.clone(self.bias_initializer),
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i, size in enumerate(hidden_sizes)
        ]
        track_layers(self, "layers")

    def build(self, input_shape):
        """Builds all layers from the last axis of `input_shape`."""
        size = input_shape[-1]
        for layer, hidden_size in zip(
            self.layers, self.hidden_sizes, strict=True
        ):
            layer.build((None, None, size))
            size = hidden_size
        super().build(input_shape)

    def call(self, inputs):
        """Applies the layers.

        Args:
            inputs: `<float>[..., size]`.

        Returns:
            `<float>[..., hidden_sizes[-1]]`.
        """
        output = self.layers[0](inputs)
        for layer in self.layers[1:]:
            if self.activation is None:
                output = layer(output)
            elif isinstance(self.activation, tf.keras.layers.Layer):
                output = layer(self.activation(output))
            else:
                output = _activate_and_apply(self.activation, layer, output)
        return output

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_sizes": self.hidden_sizes,
            "activation": tf.keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": initializers.serialize(self.bias_initializer),
        }


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
        name = default_name(name, "tracked_lambda")
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
        track_layers(self, "dependencies")

    def build(self, input_shape):
        """Makes nothing: the dependencies have been made elsewhere."""
        super().build(input_shape)

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


def _activate_and_apply(activation, layer, inputs):
    """`layer(activation(inputs))` that keeps only `inputs` until backwards.

    The activations, as large as the inputs, are computed again.

    Args:
        activation: function of a tensor, without variables.
        layer: a built `Dense` layer without activation.
        inputs: `<float>[..., size]`.

    Returns:
        `<float>[..., units]`.
    """

    @custom_gradients.custom_gradient
    def apply(rows, kernel):
        def grad(upstream):
            # As it waits for what comes back, TensorFlow does not take it for
            # what has been computed before and keep that.
            with tf.control_dependencies([upstream]):
                again = tf.identity(rows)
            with tf.GradientTape() as tape:
                tape.watch(again)
                activated = activation(again)
            d_kernel = tf.matmul(activated, upstream, transpose_a=True)
            # One after the other, so that less is alive at a time.
            with tf.control_dependencies([d_kernel]):
                d_activated = tf.matmul(upstream, kernel, transpose_b=True)
            return tape.gradient(activated, again, d_activated), d_kernel

        return tf.matmul(activation(rows), kernel), grad

    *shape, size = tensor_utils.get_shape_list(inputs)
    # [rows, units]
    output = apply(
        tf.reshape(inputs, [-1, size]),
        tf.cast(tf.convert_to_tensor(layer.kernel), inputs.dtype),
    )
    if layer.use_bias:
        output = tf.nn.bias_add(
            output, tf.cast(tf.convert_to_tensor(layer.bias), inputs.dtype)
        )
    return tf.reshape(output, [*shape, layer.units])


def default_name(name: str | None, base: str) -> str:
    """The name of a layer, which is another one for each that is given none.

    Layers of a functional model need different names. Keras does the same with
    a base of its own, the name of the class in snake case; this is for those
    that are called otherwise.

    Args:
        name: the name that is asked for, or None.
        base: name of the first of a kind of layers without names; `base_1` is
            that of the second.

    Returns:
        The name.
    """
    if name is not None:
        return name
    number = tf.keras.backend.get_uid(base) - 1
    return f"{base}_{number}" if number else base


def track_layers(owner, *attributes: str) -> None:
    """Gives each layer of a list an attribute of its own.

    `tf.train.Checkpoint` does not see Keras 3's lists of layers. What is in the
    list `attention_layers` is then also `attention_layers_0`,
    `attention_layers_1` and so on, under both Kerases.

    Args:
        owner: the layer that has the lists.
        *attributes: names of the lists, which are complete.
    """
    for attribute in attributes:
        for i, layer in enumerate(getattr(owner, attribute)):
            setattr(owner, f"{attribute}_{i}", layer)


def build_once(layer, input_shape):
    """Builds a layer, unless that is done already or is for its first call.

    Args:
        layer: a layer, which may be shared and so be built already. One whose
            `build` wants the shapes of several inputs (as Keras 3's
            `MultiHeadAttention` does) is left to build itself when called.
        input_shape: shape of its first input.
    """
    if layer.built:
        return
    required = [
        parameter
        for parameter in inspect.signature(layer.build).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(required) <= 1:
        layer.build(input_shape)
