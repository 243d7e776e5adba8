"""The Model Garden task of questions that ReadTwice answers.

Works with Keras 2 only; see `training.experiments`.
"""

# isort: split
import dataclasses

import tensorflow as tf
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from etcmodel.errors import UserError
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.tasks.read_twice_qa import encoding
from etcmodel.training import read_twice
from etcmodel.training import trainer


@dataclasses.dataclass
class ReadTwiceModelParams(base_config.Config):
    """What the models have.

    Attributes:
        encoder: the encoder.
    """

    encoder: read_twice.ReadTwiceParams = dataclasses.field(
        default_factory=read_twice.ReadTwiceParams
    )


class QuestionTask(trainer.AnswersTask):
    """Trains ReadTwice to answer; batches count segments.

    Raises:
        UserError: nothing was noted about the records, or an option is
            impossible.
    """

    PARAMS = ReadTwiceModelParams

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        try:
            super().__init__(params, logging_dir, name, metadata)
        except ValueError as error:
            raise UserError(f"task: {error}") from error
        self.require_metadata()

    def feature_sizes(self):
        """Those of the records."""
        return self.metadata["features"]

    def metric_names(self, training):
        """The span loss of documents of several segments and of one, too."""
        names = super().metric_names(training)
        return [*names, "span_loss_multi_blocks", "span_loss_single_blocks"]

    def measure(self, labels, model_outputs):
        """See `metric_names`."""
        values = super().measure(labels, model_outputs)
        is_multi = tf.cast(labels["num_blocks"] > 1, tf.float32)
        return {
            **values,
            "span_loss_multi_blocks": (values["span_loss"], is_multi),
            "span_loss_single_blocks": (values["span_loss"], 1.0 - is_multi),
        }

    def build_model(self) -> tf.keras.Model:
        """The model, with the static lengths of the records.

        Raises:
            UserError: the configuration is impossible, or does not fit the
                records.
        """
        encoder = self.task_config.model.encoder
        config = encoder.to_config(self.metadata["vocab_size"])
        read_twice.check_length(config, self.sizes.block_length)
        try:
            model = self.task_model.build(
                config,
                self.sizes.block_length,
                self.sizes.max_num_annotations,
                use_one_hot_embeddings=encoder.use_one_hot_embeddings,
            )
        except ValueError as error:
            raise UserError(f"task.model: {error}") from error
        model.checkpoint_items = {"encoder": model.get_layer("read_twice")}
        return model

    def initialize(self, model):
        """Takes spans' head, too, from a run that has learned other answers."""
        super().initialize(model)
        self.initialize_heads([model.get_layer("span_prediction")])

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """The batches of a `DataConfig`; see `read_twice.read_blocks`."""
        return read_twice.read_blocks(
            params,
            self.parse,
            self.sizes.num_blocks_per_example,
            input_context,
        )

    def parse(self, serialized: tf.Tensor):
        """Reads an example; graph code.

        Args:
            serialized: `<string>[]`.

        Returns:
            A pair of the model's inputs (see `ReadTwiceQA.build`) and of what
            losses, metrics and answers need: what is stored, and `weight`
            `<float32>[segments]`, of which a document has 1.
        """
        fields = encoding.parse(serialized, self.sizes)
        inputs = {name: fields.pop(name) for name in encoding.MODEL_FEATURES}
        fields["block_ids"] = inputs["block_ids"]
        fields["weight"] = tf.math.divide_no_nan(
            1.0, tf.cast(fields["num_blocks"], tf.float32)
        )
        return inputs, fields


def register(spec: TaskSpec) -> None:
    """Registers a task's experiments; see `training.trainer.register`.

    Args:
        spec: the task.
    """
    trainer.register(spec, _configure)


def _configure(spec: TaskSpec, **options) -> cfg.ExperimentConfig:
    """See `training.trainer.configure`; validation counts segments, too."""
    params = trainer.configure(spec, task_class=QuestionTask, **options)
    size = params.task.train_data.global_batch_size
    params.task.validation_data.global_batch_size = size
    return params
