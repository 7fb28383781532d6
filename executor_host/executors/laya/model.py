"""The Laya network: a ModernBERT encoder, decision layers over it, a score per option, and an action.

    tokens ─▶ encoder ─▶ + type embedding ─▶ decision layers ─┬─ at each marker ─▶ scorer ─▶ a logit per option
                                                               └─ at the first, with 4 features of the logits ─▶ action

The decision layers are pre-norm transformer layers without a norm at their end. The features are, of the softmax of
the question's own logits without a temperature: the largest, its lead over the second, the entropy as a share of
ln k, and k / 255, with k options (at least 2).

Encoder and decision layers compute in the dtype that is asked for, by autocast, which keeps the residual stream in
float32; scorer, features and action head are float32 always. What autocast would cast in every pass, the weights of
linear layers, is cast once: the same numbers, and half the memory.

Source: the family's published package, laya 0.3.20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError
from executor_host.executors.laya import checkpoint as folders
from protocol.contracts.laya import KINDS

ABSENT: Final = -1e4
"""The logit of an option that a question does not have. Its probability is 0 in float32."""

LEAST_PROBABILITY: Final = 1e-9
"""Of the logarithm in the entropy."""

MOST_OPTIONS: Final = 255.0


_NOT_SETTINGS: Final = frozenset(
    {
        *("architectures", "auto_map", "model_type", "transformers_version", "dtype", "torch_dtype"),
        *("reference_compile", "global_rope_theta", "local_rope_theta", "global_attn_every_n_layers"),
    }
)
"""Of an encoder's configuration: what says nothing of the model, and what is said in newer words beside it."""


class LayaModel:
    """One loaded checkpoint on its device. `load` makes it. Not safe for more than one thread."""

    def __init__(self, encoder: Any, parts: Any, dtype: Any) -> None:
        """`encoder`: a `ModernBertModel`. `parts`: a `ModuleDict` of the others, as the checkpoint names them. Both on
        one device, without gradients, in float32 but for what `cast_linear_weights` casts. `dtype`: of the passes."""
        self._encoder = encoder
        self._parts = parts
        self._dtype = dtype
        self.device = parts["type_emb"].weight.device

    def __repr__(self) -> str:
        return f"<LayaModel on {self.device} as {self._dtype}>"

    def read(
        self,
        tokens: NDArray[np.int32],
        lengths: NDArray[np.int32],
        kinds: NDArray[np.int32],
        markers: NDArray[np.int64],
        marked: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The raw logits [rows, most options], of which those in `marked` mean something, and the action logits
        [rows, 2] of a padded batch.

        `tokens` [rows, width], of which the first `lengths` [rows] of each row count, 1 or more; `kinds` [rows];
        `markers` and `marked` [rows, most options]: the options' positions, and which of them there are. The
        device has finished on return.
        """
        import torch

        device = self.device
        ids, positions, present, types = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (tokens.astype(np.int64), markers, marked, kinds.astype(np.int64))
        )
        counted = torch.from_numpy(np.arange(tokens.shape[1]) < lengths[:, None]).to(device)
        with torch.inference_mode():
            with torch.autocast(device.type, self._dtype, enabled=self._dtype != torch.float32):
                hidden = self._encoder(input_ids=ids, attention_mask=counted.long()).last_hidden_state
                hidden = hidden + self._parts["type_emb"](types)[:, None, :]
                for layer in self._parts["head"]["layers"]:
                    hidden = layer(hidden, src_key_padding_mask=~counted)
            hidden = hidden.float()
            at_markers = torch.gather(hidden, 1, positions[:, :, None].expand(-1, -1, hidden.shape[-1]))
            logits = self._parts["scorer"](at_markers).squeeze(-1)
            features = action_features(logits.masked_fill(~present, ABSENT), present.sum(-1))
            action = self._parts["act_head"](torch.cat([hidden[:, 0], features], -1))
            return logits.cpu().numpy(), action.cpu().numpy()

    def close(self) -> None:
        """Drops the parts."""
        self._encoder = self._parts = None


def action_features(logits: Any, options: Any) -> Any:
    """The features [rows, 4] of logits [rows, most options], of which each row has `options` [rows]."""
    import torch

    if logits.shape[1] < 2:  # a second one to lead over
        logits = torch.nn.functional.pad(logits, (0, 1), value=ABSENT)
    probabilities = torch.softmax(logits, -1)
    many = options.clamp(min=2).float()
    entropy = -(probabilities * probabilities.clamp_min(LEAST_PROBABILITY).log()).sum(-1)
    first, second = probabilities.topk(2, -1).values.unbind(-1)
    return torch.stack([first, first - second, entropy / many.log(), many / MOST_OPTIONS], -1)


def load(checkpoint: folders.Checkpoint, *, device: str, dtype: str) -> LayaModel:
    """The model of a verified checkpoint. `device`: `cpu`, `cuda` or `cuda:N`. `dtype`: `float32` or `bfloat16`.

    Nothing is downloaded and no code of the checkpoint is run. Raises `ConfigurationError`: torch or transformers
    missing, no such device, or tensors that the library does not take.
    """
    torch = devices.torch_library()
    try:
        import transformers
        from safetensors.torch import load_file
        from transformers import ModernBertConfig, ModernBertModel
    except ImportError as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    target = devices.find(device)
    transformers.utils.logging.disable_progress_bar()
    tensors = load_file(checkpoint.path / checkpoints.WEIGHTS)
    encoder = _encoder(checkpoint.encoder, tensors, torch, ModernBertConfig, ModernBertModel)
    parts = _parts(checkpoint, torch)
    parts.load_state_dict({name: value for name, value in tensors.items() if _is_of_a_part(name)}, strict=True)
    for module in (encoder, parts):
        module.eval().requires_grad_(False)
    for module in (encoder, parts["head"]):
        cast_linear_weights(module, getattr(torch, dtype))
    return LayaModel(encoder.to(target), parts.to(target), getattr(torch, dtype))


def cast_linear_weights(module: Any, dtype: Any) -> None:
    """What autocast to `dtype` would cast of a module in every pass: weights and biases of its linear layers, and the
    packed ones of its attentions. Norms and embeddings stay as they are."""
    import torch

    for layer in module.modules():
        if isinstance(layer, torch.nn.MultiheadAttention):
            parameters = [layer.in_proj_weight, layer.in_proj_bias]
        elif isinstance(layer, torch.nn.Linear):
            parameters = [layer.weight, layer.bias]
        else:
            continue
        for parameter in parameters:
            if parameter is not None:
                parameter.data = parameter.data.to(dtype)


def _is_of_a_part(name: str) -> bool:
    return not name.startswith("encoder.") and name != folders.UNUSED


def _encoder(
    settings: Mapping[str, Any], tensors: Mapping[str, Any], torch: Any, config_class: Any, model_class: Any
) -> Any:
    prefix = "encoder."
    try:
        # The configuration is the checkpoint's with everything said that a library's version could fill in otherwise.
        model, report = model_class.from_pretrained(
            None,
            config=config_class(**{key: value for key, value in settings.items() if key not in _NOT_SETTINGS}),
            state_dict={name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)},
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except MemoryError:
        raise
    except Exception as error:  # what a setting of the wrong type raises is up to the library
        raise ConfigurationError(f"the encoder cannot be loaded: {error}") from error
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if report.get(what):
            first = min(map(str, report[what]))
            raise ConfigurationError(f"the encoder does not fit its configuration: {what.replace('_', ' ')} {first}")
    return model


def _parts(checkpoint: folders.Checkpoint, torch: Any) -> Any:
    """Everything but the encoder, uninitialised, named as in the checkpoint."""
    nn = torch.nn
    hidden = checkpoint.encoder["hidden_size"]
    with torch.device("meta"):
        layers = [
            nn.TransformerEncoderLayer(
                hidden, folders.heads(hidden), 4 * hidden, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(checkpoint.head_layers)
        ]
        parts = nn.ModuleDict(
            {
                "head": nn.ModuleDict({"layers": nn.ModuleList(layers)}),
                "type_emb": nn.Embedding(len(KINDS), hidden),
                "scorer": nn.Sequential(
                    nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1)
                ),
                "act_head": nn.Sequential(
                    nn.Linear(hidden + folders.FEATURES, folders.ACTION_SIZE),
                    nn.GELU(),
                    nn.Linear(folders.ACTION_SIZE, folders.ACTIONS),
                ),
            }
        )
    return parts.to_empty(device="cpu")
