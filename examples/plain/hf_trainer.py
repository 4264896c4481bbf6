"""A Hugging Face Trainer with a small ViT. The first argument is a file of samples."""

import sys

import numpy as np
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

EPOCHS = 6


def make_model():
    return ViTForImageClassification(
        ViTConfig(
            image_size=8, patch_size=4, num_channels=1, num_labels=10, hidden_size=32,
            intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, initializer_range=0.2,
        )
    )  # fmt: skip


def rows(x, y):
    return [{"pixel_values": image, "labels": label} for image, label in zip(x, y, strict=True)]


def accuracy(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(1) == prediction.label_ids))}


def main():
    data = np.load(sys.argv[1])
    trainer = Trainer(
        model=make_model(),
        args=TrainingArguments(
            output_dir="hf",
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=rows(data["x_train"], data["y_train"]),
        eval_dataset=rows(data["x_test"], data["y_test"]),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
