"""Chooses batch size, learning rate and epochs of a training.

They follow from the number of records and the encoder's width, for tasks with
`TaskSpec.follows_size`: people bring from 50 to many thousand records, and
encoders of all sizes. `benchmarks/small_data.py` compares these defaults with
other settings.
"""

import math

# The rate and the width of BERT base (Devlin et al., "BERT", 2019, A.3).
_BASE_RATE = 5e-5
_BASE_WIDTH = 768
_MAX_RATE = 1e-3
# LoRA's updates start at zero, and need a higher rate.
_LORA_FACTOR = 5
_BATCH_SIZE = 16
# Below this number of records, batches are half as large.
_FEW_RECORDS = 500
# A head with random weights needs at least this many steps.
_MIN_STEPS = 300
_MAX_EPOCHS = 30
# Limits the number of validations if epochs are short.
MAX_VALIDATIONS = 10


def choose_batch_size(num_records: int) -> int:
    """Returns the number of records per step: 8 below 500 records, else 16."""
    return _BATCH_SIZE // 2 if num_records < _FEW_RECORDS else _BATCH_SIZE


def choose_rate(hidden_size: int, lora_rank: int = 0) -> float:
    """Returns the peak learning rate for an encoder.

    The rate falls with the square of the width: 5e-5 for a width of 768, 2e-4
    for 384; at most 1e-3. With LoRA, it is five times as high.
    """
    rate = min(_BASE_RATE * (_BASE_WIDTH / hidden_size) ** 2, _MAX_RATE)
    return float(f"{rate:.2g}") * (_LORA_FACTOR if lora_rank else 1)


def choose_epochs(num_records: int, batch_size: int, least: float) -> float:
    """Returns the number of epochs.

    There are at least `least` epochs, and as many as 300 steps need, but not
    more than 30 for this reason. Example: 200 records in batches of 8 make 25
    steps an epoch, and 12 epochs.
    """
    steps = max(num_records // batch_size, 1)
    return max(least, min(math.ceil(_MIN_STEPS / steps), _MAX_EPOCHS))
