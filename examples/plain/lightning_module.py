"""A Lightning module and its trainer. The first argument is a file of samples."""

import sys

import lightning
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main():
    data = {name: torch.from_numpy(array) for name, array in np.load(sys.argv[1]).items()}
    train = TensorDataset(data["x_train"], data["y_train"])
    test = TensorDataset(data["x_test"], data["y_test"])
    model = Classifier()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True))
    (found,) = trainer.validate(model, DataLoader(test, batch_size=500), verbose=False)
    print(f"accuracy {found['accuracy']:.3f}")


if __name__ == "__main__":
    main()
