"""Models of other libraries in the simulator: Hugging Face transformers, and LoRA by PEFT."""

from __future__ import annotations

from typing import Any

import torch

from tests.bridges import library
from tests.train.kinds import Kind, language, tokens

SIZE = {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}


def gpt2() -> torch.nn.Module:
    transformers = library("transformers")
    config = transformers.GPT2Config(
        vocab_size=12, bos_token_id=0, eos_token_id=0, initializer_range=0.2, **SIZE
    )
    return transformers.GPT2LMHeadModel(config)


def bert() -> torch.nn.Module:
    transformers = library("transformers")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=12, intermediate_size=64, num_labels=3, initializer_range=0.1, **size
    )
    return transformers.BertForSequenceClassification(config)


def lora() -> torch.nn.Module:
    """A small transformer of which only adapters are trained, by PEFT's own choice."""
    peft = library("peft")
    chosen = ["c_attn", "c_fc", "c_proj"]
    return peft.get_peft_model(
        gpt2(), peft.LoraConfig(r=8, target_modules=chosen, fan_in_fan_out=True)
    )


def logits(module: torch.nn.Module, x: torch.Tensor) -> Any:
    return module(input_ids=x).logits


LIBRARIES = {
    "Hugging Face BERT": Kind(bert, tokens, {"forward": logits}, lr=0.3, rounds=12),
    "Hugging Face GPT-2": Kind(gpt2, language, {"forward": logits}, lr=0.3, rounds=12, bound=0.5),
    "LoRA by PEFT": Kind(lora, language, {"forward": logits}, lr=1.0, rounds=12, bound=0.5),
}
