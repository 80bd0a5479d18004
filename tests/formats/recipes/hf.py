"""A small model and its data for the recipe."""

import os
from functools import partial
from typing import Any

import torch
import transformers
from writers.hf import Model, Words, shape, tensors

from recipes.telling import tell

torch.manual_seed(0)
data = Words()
model = Model(shape())
TrainingArguments = partial(
    transformers.TrainingArguments, max_steps=int(os.environ["LAST"]), per_device_train_batch_size=1, report_to=[],
    use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant",
)  # fmt: skip


class Tell(transformers.TrainerCallback):
    """At the end."""

    def on_train_end(self, args, state, control, model=None, optimizer=None, **_):  # type: ignore[no-untyped-def]
        tell(state.global_step, tensors(model, optimizer))


def Trainer(*arguments: Any, **options: Any) -> transformers.Trainer:  # noqa: N802
    return transformers.Trainer(*arguments, callbacks=[Tell()], **options)


# The recipe.
