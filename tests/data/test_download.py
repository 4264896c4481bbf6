import hashlib

import pytest

from anarchic.data.download import fetch
from anarchic.data.mirrors import Source
from anarchic.errors import DownloadError

BODY = bytes(range(256)) * 4096  # 1 MiB


def source(*urls, body=BODY, **changes):
    known = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return Source("file.gz", urls, **(known | changes))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_under_its_name(serve, tmp_path):
    mirror = serve(BODY)
    path = fetch(source(mirror.url), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "file.gz"
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["file.gz"]


def test_a_cut_connection_is_continued_where_it_was_cut(serve, tmp_path):
    mirror = serve(BODY, cut_after=300_000)
    path = fetch(source(mirror.url), tmp_path)
    assert path.read_bytes() == BODY
    assert mirror.requests == [None, "bytes=300000-"]


def test_a_part_left_by_an_earlier_process_is_continued(serve, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(BODY[:1000])
    mirror = serve(BODY)
    path = fetch(source(mirror.url), tmp_path)
    assert path.read_bytes() == BODY
    assert mirror.requests == ["bytes=1000-"]


def test_a_bad_part_is_fetched_again_from_the_only_mirror(serve, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(b"?" * 1000)
    mirror = serve(BODY)
    assert fetch(source(mirror.url), tmp_path).read_bytes() == BODY
    assert mirror.requests == ["bytes=1000-", None]


def test_a_finished_part_needs_no_request(serve, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(BODY)
    mirror = serve(BODY)
    assert fetch(source(mirror.url), tmp_path).read_bytes() == BODY
    assert mirror.requests == []


def test_a_server_that_ignores_ranges_sends_all_of_it_again(serve, tmp_path):
    mirror = serve(BODY, ranges=False, cut_after=300_000)
    path = fetch(source(mirror.url), tmp_path)
    assert path.read_bytes() == BODY
    assert mirror.requests == [None, "bytes=300000-"]


def test_a_server_that_announces_no_length_is_read_to_the_end(serve, tmp_path):
    mirror = serve(BODY, announce=False)
    assert fetch(source(mirror.url), tmp_path).read_bytes() == BODY


def test_a_cut_is_noticed_without_an_announced_length(serve, tmp_path):
    mirror = serve(BODY, announce=False, cut_after=300_000)
    assert fetch(source(mirror.url), tmp_path).read_bytes() == BODY
    assert mirror.requests == [None, "bytes=300000-"]


def test_the_next_mirror_continues_what_the_first_began(serve, tmp_path):
    first, second = serve(BODY, cut_after=5000), serve(BODY)
    path = fetch(source(first.url, second.url), tmp_path, attempts=1)
    assert path.read_bytes() == BODY
    assert second.requests == ["bytes=5000-"]


def test_a_wrong_checksum_leaves_nothing_behind(serve, tmp_path):
    mirror = serve(BODY)
    with pytest.raises(DownloadError, match="expected 000"):
        fetch(source(mirror.url, sha256="0" * 64), tmp_path)
    assert names(tmp_path) == []


def test_a_good_mirror_is_used_after_a_bad_one(serve, tmp_path):
    bad, good = serve(b"x" * len(BODY)), serve(BODY)
    assert fetch(source(bad.url, good.url), tmp_path).read_bytes() == BODY
    assert good.requests == [None]  # the bad bytes were thrown away, not continued


@pytest.mark.parametrize("announce", [True, False])
def test_a_body_that_is_too_large_is_refused(serve, tmp_path, announce):
    mirror = serve(BODY + b"more", announce=announce)
    with pytest.raises(DownloadError, match="1,048,576"):
        fetch(source(mirror.url), tmp_path)
    assert names(tmp_path) == []


def test_a_part_longer_than_the_file_is_thrown_away(serve, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(BODY + b"more")
    mirror = serve(BODY)
    assert fetch(source(mirror.url), tmp_path).read_bytes() == BODY
    assert mirror.requests == ["bytes=1048580-", None]


def test_a_file_without_published_size_or_checksum_is_bounded(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("anarchic.data.mirrors.UNKNOWN_SIZE_LIMIT", 1000)
    unknown = {"size": None, "sha256": None}
    mirror = serve(b"x" * 1000)
    assert fetch(source(mirror.url, **unknown), tmp_path).stat().st_size == 1000
    mirror = serve(b"x" * 1001)
    with pytest.raises(DownloadError, match="1,000"):
        fetch(source(mirror.url, **unknown), tmp_path / "other")


def test_the_error_names_every_mirror_and_its_failure(serve, tmp_path):
    gone, missing = "http://127.0.0.1:9/file", serve(BODY, status=404)
    with pytest.raises(DownloadError) as caught:
        fetch(source(gone, missing.url), tmp_path, timeout_s=2)
    assert f"{gone}: " in str(caught.value)
    assert "refused" in str(caught.value)
    assert f"{missing.url}: HTTP 404" in str(caught.value)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match="cannot write"):
        fetch(source("http://127.0.0.1:9/"), tmp_path / "file" / "mnist")


def test_progress_is_one_plain_line_without_rich(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "rich.progress", None)
    mirror = serve(BODY)
    fetch(source(mirror.url), tmp_path)
    assert capsys.readouterr().err == "Fetching file.gz ...\n"
