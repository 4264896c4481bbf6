"""What a server tells its workers about its rule."""

from contextlib import closing

import pytest

from anarchic import wire
from anarchic.server.runs import open_run
from anarchic.server.store import open_store
from tests.chaos.servers import write_model


@pytest.mark.parametrize(("step", "told"), [("sgd", 0.5), ("adam", None)])
def test_the_rate_is_told_where_it_is_the_length_of_a_step(step, told, tmp_path):
    init = write_model(tmp_path / "model.safetensors")
    with closing(open_store(tmp_path / "run.db")) as store:
        open_run(store, {"rule": "fedbuff", "server_lr": 0.5, "server_opt": step}, init)
        terms = wire.decode_snapshot(store.model(0))[1].terms
    assert (terms.rule, terms.server_lr) == ("fedbuff", told)
