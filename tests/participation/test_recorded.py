import numpy as np
import pytest

from anarchic.errors import DataError
from anarchic.participation import from_visits, read_visits

HEADER = "worker,pull_s,push_s,local_steps\n"


def written(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def test_visits_are_read_in_any_order(tmp_path):
    text = "push_s,worker,local_steps,pull_s,lost,note\n9,1,3,4,0,x\n2.5,1,2,0.5,,y\n,0,7,1,1,z\n"
    visits = read_visits(written(tmp_path, text))
    assert visits.worker.tolist() == [0, 1, 1]
    assert visits.pull_s.tolist() == [1, 0.5, 4]
    assert visits.push_s.tolist() == [np.inf, 2.5, 9]
    assert visits.local_steps.tolist() == [7, 2, 3]
    table = from_visits(visits, 1, 2)
    table.check()
    assert table.base_version.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("worker,pull_s,push_s\n", "line 1: column local_steps is missing"),
        (HEADER, "no visits below its header"),
        (HEADER + "0,1,2,5\nx,1,2,5\n", "line 3, column worker: 'x' is not a worker number"),
        (HEADER + "0,-1,2,5\n", "line 2, column pull_s: '-1' is not a time"),
        (HEADER + "0,1,nan,5\n", "line 2, column push_s: 'nan' is not a time"),
        (HEADER + "0,1,,5\n", "line 2, column push_s: '' is not a time"),
        (HEADER + "0,3,2,5\n", "line 2, column push_s: the visit pushes at 2.0 s, before it pulls"),
        (HEADER + "0,1,2,0\n", "line 2, column local_steps: 0 is not from 1 to"),
        (HEADER + "0,1,2,1.5\n", "line 2, column local_steps: '1.5' is not a number of"),
        (HEADER + "0,1,2\n", "line 2, column local_steps: the line ends before it"),
        (HEADER + "0,1,2,5,6\n", "line 2: 5 values for 4 columns"),
        (HEADER + "0,1,4,5\n0,3,6,5\n", "line 3, column pull_s: worker 0 pulls at 3.0 s, before"),
        ("lost," + HEADER + "maybe,0,1,2,5\n", "line 2, column lost: 'maybe' is not 0, 1, true"),
    ],
)
def test_an_error_names_the_line(tmp_path, text, problem):
    with pytest.raises(DataError, match=problem) as error:
        read_visits(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(DataError, match="Cannot read the trace"):
        read_visits(tmp_path / "absent.csv")
