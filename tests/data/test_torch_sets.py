from __future__ import annotations

import itertools

import numpy as np
import pytest

from anarchic.data import Dataset, torch_sets
from anarchic.errors import DataError

torch = pytest.importorskip("torch")
from torch.utils import data as sets  # noqa: E402

X = torch.arange(40.0).reshape(20, 2)
Y = torch.arange(20) % 4
TENSORS = sets.TensorDataset(X, Y)


class Squares(sets.Dataset):
    """A data set of one's own: (a picture, a number)."""

    def __len__(self):
        return 10

    def __getitem__(self, number):
        return torch.full((1, 2, 2), float(number)), number % 3


class Stream(sets.IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(2), 0), (torch.ones(2), 1)])


@pytest.mark.parametrize(
    ("source", "shape", "classes"),
    [
        (TENSORS, (20, 2), 4),
        (sets.Subset(TENSORS, [4, 1, 2]), (3, 2), 3),
        (sets.ConcatDataset([TENSORS, TENSORS]), (40, 2), 4),
        (sets.Subset(sets.ConcatDataset([TENSORS, TENSORS]), range(5, 30)), (25, 2), 4),
        (sets.DataLoader(TENSORS, batch_size=7, shuffle=True), (20, 2), 4),
        (Squares(), (10, 1, 2, 2), 3),
        (sets.DataLoader(Squares()), (10, 1, 2, 2), 3),
    ],
)
def test_a_map_style_data_set_is_read_in_order(source, shape, classes):
    data = Dataset.of(source, test=TENSORS if len(shape) == 2 else Squares())
    assert (data.x_train.shape, data.x_train.dtype) == (shape, np.float32)
    assert data.classes == max(classes, 4 if len(shape) == 2 else 3)
    if isinstance(source, sets.Subset) and shape[0] == 3:
        assert data.x_train[:, 0].tolist() == [8, 2, 4]
        assert data.y_train.tolist() == [0, 1, 2]


class Listed(sets.Sampler):
    """A sampler of one's own."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def loader(source=TENSORS, **how):
    return sets.DataLoader(source, **how)


def rows_read(source):
    """The numbers of the rows of X that are taken."""
    return (Dataset.of(source, test=TENSORS).x_train[:, 0] // 2).astype(int).tolist()


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (loader(sampler=sets.SubsetRandomSampler([7, 3, 5])), [7, 3, 5]),
        (loader(sampler=sets.SubsetRandomSampler(torch.tensor([7, 3]))), [7, 3]),
        (loader(sampler=Listed([9, 2, 4])), [2, 4, 9]),
        (loader(sampler=[9, 2, 4]), [2, 4, 9]),
        (loader(sampler=range(4)), [0, 1, 2, 3]),
        (loader(sampler=sets.SequentialSampler(range(4))), [0, 1, 2, 3]),
        (loader(sampler=sets.RandomSampler(range(4))), [0, 1, 2, 3]),
        (loader(sampler=sets.RandomSampler(TENSORS, num_samples=3)), list(range(20))),
        (loader(batch_sampler=sets.BatchSampler(Listed([1, 0]), 2, drop_last=False)), [0, 1]),
        (loader(batch_sampler=[[3, 1], [6]]), [1, 3, 6]),
        (loader(batch_size=None, sampler=sets.SubsetRandomSampler([7, 3])), [7, 3]),
        (loader(sets.Subset(TENSORS, [8, 9]), sampler=sets.SubsetRandomSampler([1])), [9]),
        (loader(shuffle=True, drop_last=True, batch_size=6), list(range(20))),
    ],
)
def test_a_loader_gives_the_samples_that_its_sampler_lists(source, rows):
    assert rows_read(source) == rows


def test_two_loaders_over_one_data_set_share_no_sample():
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1)).tolist()
    train, test = (
        loader(sampler=sets.SubsetRandomSampler(part)) for part in (order[:15], order[15:])
    )
    data = Dataset.of(train, test=test)
    both = np.concatenate([data.x_train, data.x_test])[:, 0] // 2
    assert (len(data.x_train), len(data.x_test), len(np.unique(both))) == (15, 5, 20)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"sampler": sets.WeightedRandomSampler([1.0] * 20, 20)}, "WeightedRandomSampler draws"),
        ({"sampler": sets.RandomSampler(TENSORS, replacement=True)}, "RandomSampler draws some"),
        ({"sampler": sets.SubsetRandomSampler([1, 1, 2])}, "draws some samples more often"),
        ({"sampler": Listed(itertools.repeat(3))}, "Listed draws some .* or a Subset of it"),
        ({"sampler": Listed(["a"])}, "Listed does not list numbers of samples"),
        ({"sampler": Listed([5, 20])}, "lists the samples 5 to 20, .* numbered 0 to 19"),
        ({"sampler": Listed([])}, "Listed lists no samples"),
        ({"collate_fn": list}, "its own collate_fn, .* do its work in the data set's __getitem__"),
    ],
)
def test_a_loader_that_cannot_be_followed_is_refused(how, says):
    with pytest.raises(DataError, match=says):
        Dataset.of(loader(**how))


class Negated(sets.TensorDataset):
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return -x, y


class NegatedSubset(sets.Subset):
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return -x, y

    def __getitems__(self, numbers):  # torch asks for both
        return [self[number] for number in numbers]


class NegatedJoin(sets.ConcatDataset):
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return -x, y


@pytest.mark.parametrize(
    "source",
    [
        Negated(X, Y),
        sets.Subset(Negated(X, Y), range(20)),
        sets.ConcatDataset([Negated(X, Y)]),
        sets.DataLoader(Negated(X, Y)),
        NegatedSubset(TENSORS, range(20)),
        NegatedJoin([TENSORS]),
    ],
)
def test_a_subclass_is_read_by_its_own_getitem(source):
    data = Dataset.of(source, test=TENSORS)
    assert np.array_equal(data.x_train, -data.x_test)


def test_tensors_are_taken_with_their_targets():
    data = Dataset.of(X.to(torch.bfloat16), torch.rand(20, 3))
    assert (data.y_train.shape, data.classes) == ((16, 3), None)


def test_a_stream_is_refused_with_what_to_do_which_works():
    for stream in (Stream(), sets.DataLoader(Stream())):
        with pytest.raises(DataError, match=r"IterableDataset: .* Dataset.of\(list\(stream\)\)"):
            Dataset.of(stream)
    assert len(Dataset.of(list(Stream()), test=0.5).x_train) == 1


class Endless(sets.Dataset):
    def __getitem__(self, number):
        return torch.zeros(2), 0


def test_a_data_set_without_a_length_is_refused():
    for source in (Endless(), sets.DataLoader(Endless())):
        with pytest.raises(DataError, match="Endless has no length: give it __len__"):
            Dataset.of(source)


class Odd(Squares):
    def __init__(self, sample):
        self.sample = sample

    def __getitem__(self, number):
        return self.sample(number)


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (
            lambda n: {"x": 1, "y": 2},
            r"a dict with the keys x, y: write a small Dataset .*\(sample\['x'\], sample\['y'\]\)",
        ),
        (lambda n: {"a": 1, "b": 2, "c": 3}, r"keys a, b, c: .* \(sample\[INPUT\], sample\[TARGET"),
        (
            lambda n: ((torch.zeros(3), torch.zeros(2)), 0),
            r"Input 0 is a tuple of shapes \(3,\), \(2,\): several .* split it again in forward=",
        ),
        (lambda n: ((torch.zeros(3), torch.ones(3)), 0), "Input 0 is a tuple of shapes"),
        (lambda n: ([torch.zeros(3), torch.ones(3)], 0), "Input 0 is a list of shapes"),
        (lambda n: ((torch.zeros(3), 1.0), 0), r"Input 0 is a tuple of shapes \(3,\), \(\)"),
        (lambda n: ((1.0, [1, [2]]), 0), r"Input 0 is a tuple of shapes \(\), \(2,\)"),
        (lambda n: ({"a": torch.zeros(3)}, 0), "Input 0 is a dict with the keys a: several"),
        (
            lambda n: (torch.zeros(3), (torch.zeros(2), torch.ones(2))),
            r"Target 0 is a tuple of shapes .* split it again in loss=\.",
        ),
        (lambda n: (torch.zeros(3), {"boxes": 1}), "Target 0 is a dict with the keys boxes"),
        (lambda n: (torch.zeros(1), 0, "name"), "got 3 parts"),
        (lambda n: (torch.zeros(n + 1), 0), "Input 1 has shape .2,., input 0 .1,.: pad or cut"),
        (lambda n: (torch.zeros(1), torch.zeros(n + 1)), "targets have different shapes"),
    ],
)
def test_samples_that_do_not_fit_are_named(sample, says):
    with pytest.raises(DataError, match=says):
        Dataset.of(Odd(sample))


@pytest.mark.parametrize("sample", [(1.0, 2), [1.0, 2], [torch.tensor(1.0), 2], [[1.0], [2]]])
def test_a_list_of_numbers_is_one_input(sample):
    assert Dataset.of(Odd(lambda n: (sample, 0))).x_train[0].ravel().tolist() == [1, 2]


def test_parts_of_different_shapes_are_refused():
    with pytest.raises(DataError, match="inputs of shapes"):
        Dataset.of(sets.ConcatDataset([TENSORS, Squares()]))


def test_more_than_the_memory_holds_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch_sets.os, "sysconf", lambda name: 2)
    with pytest.raises(DataError, match=r"write them to a .npy file .*mmap_mode='r'"):
        Dataset.of(Squares())


def test_sparse_arrays_are_refused_with_what_to_do():
    torch, sparse = pytest.importorskip("torch"), pytest.importorskip("scipy.sparse")
    x, y = np.eye(6, dtype=np.float32), np.arange(6) % 2
    for matrix in (sparse.csr_matrix(x), sparse.coo_array(x)):
        with pytest.raises(DataError, match=r"of scipy.sparse, with \(6, 6\) values: give x.toarr"):
            Dataset.of(matrix, y)
    with pytest.raises(DataError, match=r"sparse \(torch.sparse_coo\).*give x.to_dense\(\)"):
        Dataset.of(torch.tensor(x).to_sparse(), y)
    with pytest.raises(DataError, match=r"of scipy\.sparse"):
        Dataset.of(sparse.csr_matrix(x))


def test_a_sample_that_cannot_be_read_is_named():
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            if number == 2:
                raise OSError("no such file")
            return torch.ones(2), 0

    with pytest.raises(DataError, match=r"Broken fails to give its sample 2 \(OSError: no such"):
        Dataset.of(Broken())


def test_masked_values_are_not_taken_for_numbers():
    x = np.ma.masked_array(np.ones((4, 2)), mask=np.eye(4, 2) > 0)
    with pytest.raises(DataError, match=r"masked in 2 places: fill them in, x.filled"):
        Dataset.of(x, [0, 1, 0, 1])
    assert Dataset.of(np.ma.masked_array(np.ones((4, 2))), [0, 1, 0, 1]).x_train.shape == (3, 2)
