"""A training loop: DataLoader, Adam, BatchNorm. The first argument is a file of samples."""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16 * 6 * 6, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


def train_one_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    data = {name: torch.from_numpy(array) for name, array in np.load(sys.argv[1]).items()}
    train = TensorDataset(data["x_train"], data["y_train"])
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(EPOCHS):
        loss = train_one_epoch(model, loader, optimizer)
        print(f"epoch {epoch}: loss {loss:.3f}")

    model.eval()
    with torch.no_grad():
        right = model(data["x_test"]).argmax(1) == data["y_test"]
    print(f"accuracy {right.float().mean():.3f}")


if __name__ == "__main__":
    main()
