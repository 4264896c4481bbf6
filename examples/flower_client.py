"""A Flower client, as it was written for Flower: `anarchic work` runs it without a change.

anarchic init --flower flower_client:client_fn --out model.safetensors
anarchic serve --init model.safetensors --store run.db --m 2 --open-enrolment
anarchic work --server http://127.0.0.1:8780 --name ann --flower flower_client:client_fn \
    --flower-config partition-id=0 --updates 10
anarchic work --server http://127.0.0.1:8780 --name bob --flower flower_client:client_fn \
    --flower-config partition-id=1 --updates 10
"""

import numpy as np
from flwr.client import NumPyClient


def load(partition):
    """The samples of one of two partitions: points, and on which side of a line they lie."""
    x = np.random.default_rng(partition).normal(size=(500, 3))
    return x, (x @ [1.0, -2.0, 0.5] + 0.3 > 0).astype(float)


class Client(NumPyClient):
    """Logistic regression by gradient descent."""

    def __init__(self, partition):
        self.x, self.y = load(partition)
        self.weight, self.bias = np.zeros(3), np.zeros(1)

    def get_parameters(self, config):
        return [self.weight, self.bias]

    def fit(self, parameters, config):
        self.weight, self.bias = parameters
        for _ in range(config.get("local-epochs", 20)):
            chance = 1 / (1 + np.exp(-(self.x @ self.weight + self.bias)))
            off = (chance - self.y) / len(self.y)
            self.weight = self.weight - 2.0 * self.x.T @ off
            self.bias = self.bias - 2.0 * off.sum(keepdims=True)
        right = np.where(self.y == 1, chance, 1 - chance)
        loss = float(-np.log(right + 1e-9).mean())
        return self.get_parameters(config), len(self.y), {"loss": loss}


def client_fn(context):
    return Client(int(context.node_config.get("partition-id", 0))).to_client()


if __name__ == "__main__":
    print(__doc__)
