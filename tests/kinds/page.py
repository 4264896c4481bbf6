"""docs/models.md, from the outcomes in results.json; ``python -m tests.kinds`` writes both."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kinds.outcome import Outcome

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.json", HERE.parents[1] / "docs" / "models.md"
WORLDS = ("loop", "batched", "live")

# Training loops of other libraries, and the test in which two workers of a real server learn.
LOOPS = {
    "LoRA by PEFT": "test_huggingface.py::test_two_workers_train_adapters_and_nothing_else_travels",
    "Hugging Face Trainer": "test_scripts.py::test_two_workers_of_a_script_learn[hf_trainer]",
    "Lightning": "test_scripts.py::test_two_workers_of_a_script_learn[lightning_module]",
    "DataLoader loop with Adam": "test_scripts.py::test_two_workers_of_a_script_learn[loop]",
    "scikit-learn, partial_fit": "test_sklearn.py::test_two_classifiers_learn_together",
    "JAX pytree": "test_jax.py::test_two_workers_learn_a_pytree_together",
    "Keras 3": "test_keras.py::test_two_keras_models_learn_together",
    "Flower client, unchanged": "test_flower.py::test_two_unchanged_clients_learn_together",
}
TOP = """# Models and training loops

What people bring, and what becomes of it in the simulator (`Loop`, `Batched`) and live. Written by
`python -m tests.kinds` from `tests/kinds/results.json`, which holds what was measured. Every kind
that works reaches a bound which the untrained model misses: both numbers are shown, accuracy unless
a loss is named. *Times* is the time of a local step beside that of torch's own loop, in one thread,
in the same run: below 1 is faster. *Visit by visit*: on a CPU the batched backend computes one
visit after another, on several threads, since torch cannot batch the model or is slower at it
(convolutions). Under `buffers="local"` a model is judged with the buffers of a worker. The models
here are tiny, so that what is around them takes most of the time. An empty cell: there is nothing
to try. How to bring a model: [own_models.md](own_models.md); a training loop:
[workers.md](workers.md) and [bridges.md](bridges.md).

"""


def page(results: dict[str, dict[str, dict]]) -> str:
    lines = ["| kind | bound | loop | batched | live |", "| --- | --- | --- | --- | --- |"]
    sentences = []
    for kind, worlds in results.items():
        found = {world: Outcome(**told) for world, told in worlds.items()}
        cells = [cell(found.get(world), sentences) for world in WORLDS]
        lines.append(" | ".join([f"| {kind}", bound(found), *cells]) + " |")
    told = [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]
    return (
        TOP + "\n".join(lines) + "\n\nRefused, with these sentences:\n\n" + "\n".join(told) + "\n"
    )


def bound(found: dict[str, Outcome]) -> str:
    some = next((each for each in found.values() if each.bound), None)
    if some is None:
        return ""
    return f"loss {some.bound:g}" if some.by_loss else f"{some.bound:g}"


def cell(outcome: Outcome | None, sentences: list[str]) -> str:
    """One world of one kind."""
    if outcome is None:
        return ""
    if outcome.refused is not None:
        if outcome.refused not in sentences:
            sentences.append(outcome.refused)
        return f"refused ({sentences.index(outcome.refused) + 1})"
    if not outcome.bound:
        return "works"
    measure = "loss " if outcome.by_loss else ""
    told = f"works, {measure}{outcome.before:.2f} to {outcome.after:.2f}"
    if outcome.slower is not None:
        told += f", {outcome.slower:.2g} times"
    return f"{told}, visit by visit" if outcome.alone else told


def written() -> str:
    return page(json.loads(RESULTS.read_text()))
