"""Hugging Face's Trainer as visits, and adapters of PEFT as all that travels."""

from __future__ import annotations

from pathlib import Path

import pytest

from anarchic import wire
from anarchic.worker import Worker
from tests.bridges import library
from tests.bridges.still import StillWorker
from tests.chaos.servers import ServerProcess
from tests.kinds.outcome import learnt
from tests.waiting import until

transformers = library("transformers")
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import anarchic
from anarchic.bridges.huggingface import VisitCallback

TOKENS = 12


def small_gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    size = {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = GPT2Config(
        vocab_size=TOKENS, bos_token_id=0, eos_token_id=0, initializer_range=0.2, **size
    )
    return GPT2LMHeadModel(config)


def sequences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Each token is the one before it plus 1, beginning anywhere."""
    starts = torch.randint(TOKENS, (count, 1), generator=torch.Generator().manual_seed(seed))
    rows = (starts + torch.arange(10)) % TOKENS
    return [{"input_ids": row, "labels": row} for row in rows]


def train(model, folder: Path, callback: VisitCallback, seed: int = 0, **options) -> None:
    settings = {"num_train_epochs": 2, "learning_rate": 1e-2, "lr_scheduler_type": "constant"}
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=8, save_strategy="no", logging_steps=2,
        report_to="none", disable_tqdm=True, use_cpu=True, **{**settings, **options},
    )  # fmt: skip
    data = sequences(64, seed)
    Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()


@pytest.mark.parametrize(
    ("every", "options", "visits"),
    [(None, {}, 2), (3, {}, 6), (3, {"gradient_accumulation_steps": 2}, 3)],
)
def test_epochs_or_steps_are_visits(every, options, visits, tmp_path):
    model = small_gpt()
    worker = StillWorker.of(model)
    train(model, tmp_path, VisitCallback(worker, every_n_steps=every), **options)
    assert len(worker.pushed) == visits  # of 16 steps, or 8
    assert {push["samples"] for push in worker.pushed} == {64}
    assert worker.pushed[-1]["loss"] < worker.pushed[0]["loss"]
    assert "lm_head.weight" not in worker.last  # tied: it travels once


def loss_of(model) -> float:
    model.eval()
    batch = torch.stack([row["input_ids"] for row in sequences(50, seed=9)])
    with torch.no_grad():
        return float(model(input_ids=batch, labels=batch).loss)


@pytest.mark.slow
def test_two_workers_train_adapters_and_nothing_else_travels(tmp_path):
    peft = library("peft")

    def adapted():
        chosen = ["c_attn", "c_fc", "c_proj"]
        config = peft.LoraConfig(r=8, target_modules=chosen, fan_in_fan_out=True)
        return peft.get_peft_model(small_gpt(), config)

    model = adapted()
    lora = {n: p.detach().numpy() for n, p in model.named_parameters() if p.requires_grad}
    layout = anarchic.Layout.of({name: (array.shape, "F32") for name, array in lora.items()})
    assert all("lora_" in name for name in layout.names)
    assert layout.dim < sum(p.numel() for p in model.parameters()) / 2
    init = tmp_path / "model.safetensors"
    wire.save_model(init, layout, layout.join(lora))
    options = ("--open-enrolment", "--m", "1")
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *options) as server:
        url = f"http://127.0.0.1:{server.port}"
        for version, name in enumerate(["ann", "bob"] * 2):
            with Worker(url, name=name) as worker:
                train(adapted(), tmp_path, VisitCallback(worker), seed=version % 2)
        with Worker(url) as watcher:
            until(lambda: watcher.pull().version == 8)
            tensors = watcher.layout.split(watcher.pull().params)
    before = loss_of(model)
    assert before > 2.3
    model.load_state_dict({n: torch.tensor(t) for n, t in tensors.items()}, strict=False)
    learnt(before, loss_of(model), 1.5, by_loss=True)
