import gzip
import hashlib
import io
import lzma
import tarfile
import threading
import zipfile

import pytest

from anarchic.data import files
from anarchic.data.files import find, locate, read
from anarchic.data.mirrors import SOURCES, Source
from anarchic.errors import DataError, DownloadError


def put(path, content=b"here"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def use_source(monkeypatch, filename, source):
    monkeypatch.setattr(files, "SOURCES", {"toy": {filename: source}})


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_places_are_searched_in_order(empty_home, monkeypatch, tmp_path, suffix):
    monkeypatch.setenv("ANARCHIC_DATA", str(tmp_path / "shared"))
    cached = put(empty_home / "mnist" / f"images{suffix}")
    assert find("mnist", "images", tmp_path / "own") == cached
    shared = put(tmp_path / "shared" / "mnist" / f"images{suffix}")
    assert find("mnist", "images", tmp_path / "own") == shared
    own = put(tmp_path / "own" / "mnist" / f"images{suffix}")
    assert find("mnist", "images", str(tmp_path / "own")) == own


def test_debian_s_copy_of_fashion_mnist_is_found(empty_home, monkeypatch, tmp_path):
    packaged = put(tmp_path / "debian" / "train-images-idx3-ubyte.gz")
    monkeypatch.setattr(files, "_SYSTEM_FOLDERS", {"fashion-mnist": packaged.parent})
    assert find("fashion-mnist", "train-images-idx3-ubyte") == packaged


def test_cifar_s_own_folder_is_found_below_ours(empty_home):
    unpacked = put(empty_home / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin.xz")
    assert find("cifar10", "test_batch.bin") == unpacked


def test_a_data_set_is_where_all_its_files_are(empty_home, tmp_path):
    *most, last = SOURCES["mnist"]
    for name in most:
        put(tmp_path / "mnist" / f"{name}.gz")
    assert locate("mnist", tmp_path) is None
    put(tmp_path / "mnist" / last)
    assert locate("mnist", tmp_path) == tmp_path / "mnist"
    assert locate("mnist") is None


def test_an_archive_that_was_not_unpacked_yet_counts(empty_home):
    put(empty_home / "cifar10" / "cifar-10-binary.tar.gz")
    assert locate("cifar10") == empty_home / "cifar10"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a", b"text"), ("a.gz", gzip.compress(b"text")), ("a.xz", lzma.compress(b"text"))],
    ids=["plain", "gz", "xz"],  # not the bytes: they hold the time, which no two processes share
)
def test_read_decompresses_by_suffix(tmp_path, name, content):
    assert read(put(tmp_path / name, content)) == b"text"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("spoil", [lambda b: b[:-7], lambda b: b[:40] + b"!" + b[41:], bytes.upper])
def test_damaged_files_are_named_with_the_remedy(tmp_path, compress, spoil):
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz"}[compress]
    content = spoil(compress(bytes(range(256)) * 9))
    path = put(tmp_path / f"images{suffix}", content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert f"{len(content)} bytes" in str(caught.value)
    assert "Delete it" in str(caught.value)


def test_a_file_that_vanished_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read: .* Make it readable"):
        read(tmp_path / "gone.gz")


def test_a_missing_file_is_fetched_into_the_first_place_that_can_be_written(
    serve, empty_home, monkeypatch, tmp_path
):
    mirror = serve(b"body")
    source = Source("a.gz", (mirror.url,), 4, hashlib.sha256(b"body").hexdigest())
    use_source(monkeypatch, "a", source)
    assert find("toy", "a") == empty_home / "toy" / "a.gz"
    assert find("toy", "a") == empty_home / "toy" / "a.gz"
    (tmp_path / "file").write_text("not a folder")
    assert find("toy", "a", tmp_path / "file") == empty_home / "toy" / "a.gz"
    (empty_home / "toy" / "a.gz").unlink()
    assert find("toy", "a", tmp_path / "own") == tmp_path / "own" / "toy" / "a.gz"
    assert len(mirror.requests) == 2


def test_a_read_only_folder_is_not_written(serve, empty_home, monkeypatch, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o555)
    monkeypatch.setenv("ANARCHIC_DATA", str(shared))
    mirror = serve(b"body")
    use_source(monkeypatch, "a", Source("a.gz", (mirror.url,), 4, None))
    assert find("toy", "a") == empty_home / "toy" / "a.gz"
    assert list(shared.iterdir()) == []


def test_processes_that_start_together_fetch_once(serve, empty_home, monkeypatch):
    mirror = serve(b"body")
    source = Source("a.gz", (mirror.url,), 4, hashlib.sha256(b"body").hexdigest())
    use_source(monkeypatch, "a", source)
    # Locks belong to open files, so threads keep each other out just as processes do.
    threads = [threading.Thread(target=find, args=("toy", "a")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(mirror.requests) == 1


def test_no_network_names_the_file_the_places_and_the_remedy(empty_home, monkeypatch, tmp_path):
    use_source(monkeypatch, "a", Source("a.gz", ("http://127.0.0.1:9/a.gz",), 4, "0" * 64))
    with pytest.raises(DownloadError) as caught:
        find("toy", "a", tmp_path)
    message = str(caught.value)
    assert f"a.gz is not in {tmp_path / 'toy'}, {empty_home / 'toy'}" in message
    assert "http://127.0.0.1:9/a.gz: " in message
    assert f"put the file at {tmp_path / 'toy' / 'a.gz'}" in message
    assert "ANARCHIC_DATA" in message


def test_a_file_without_a_mirror_says_where_to_put_it(empty_home, tmp_path):
    with pytest.raises(DataError, match=f"Put it at {tmp_path}/mnist/letters"):
        find("mnist", "letters", tmp_path)


def tar_of(contents):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def zip_of(contents):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        for name, content in contents.items():
            zipped.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(("name", "pack"), [("toy.tar.gz", tar_of), ("toy.zip", zip_of)])
def test_an_archive_is_unpacked_and_deleted(serve, empty_home, monkeypatch, tmp_path, name, pack):
    body = pack({"../../evil": b"!", "x/a.bin": b"one", "x/b.bin": b"two", "/etc/c": b"!"})
    mirror = serve(body)
    members = {"x/a.bin": "a.bin", "x/b.bin": "b.bin"}
    source = Source(name, (mirror.url,), members=members)
    monkeypatch.setattr(files, "SOURCES", {"toy": dict.fromkeys(members.values(), source)})
    assert read(find("toy", "a.bin")) == b"one"
    assert read(find("toy", "b.bin")) == b"two"
    assert len(mirror.requests) == 1
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in written) == ["a.bin", "b.bin"]


def test_an_archive_put_there_by_hand_is_used_and_kept(empty_home, monkeypatch, tmp_path):
    use_source(monkeypatch, "a.bin", Source("toy.zip", (), members={"a": "a.bin"}))
    archive = put(tmp_path / "own" / "toy" / "toy.zip", zip_of({"a": b"one"}))
    assert read(find("toy", "a.bin", tmp_path / "own")) == b"one"
    assert archive.exists()


@pytest.mark.parametrize("name", ["toy.zip", "toy.tar.gz"])
@pytest.mark.parametrize(
    "content",
    [b"<html>sorry</html>", zip_of({"b": b""}), tar_of({"b": b""})],
    ids=["page", "zip", "tar"],
)
def test_a_broken_archive_is_a_data_error(serve, empty_home, monkeypatch, name, content):
    mirror = serve(content)
    use_source(monkeypatch, "a", Source(name, (mirror.url,), members={"a": "a"}))
    with pytest.raises(DataError, match="Delete it"):
        find("toy", "a")
    assert list((empty_home / "toy").iterdir()) == []


def test_a_member_above_the_size_limit_is_refused(serve, empty_home, monkeypatch):
    monkeypatch.setattr("anarchic.data.download.LARGEST_MEMBER", 1000)
    mirror = serve(zip_of({"a": b"0" * 1001}))
    use_source(monkeypatch, "a", Source("toy.zip", (mirror.url,), members={"a": "a"}))
    with pytest.raises(DataError, match="larger than 1,000"):
        find("toy", "a")
    assert list((empty_home / "toy").iterdir()) == []


def test_every_source_has_mirrors_and_a_checksum_or_members():
    for folder in SOURCES.values():
        for source in folder.values():
            assert source.urls
            assert source.members or (source.size and len(source.sha256) == 64)
