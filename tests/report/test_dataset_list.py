from anarchic.report.dataset_list import DatasetStatus, list_datasets


def test_data_sets_are_where_their_files_are(tmp_path, monkeypatch):
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "shakespeare"
    place.mkdir()
    (place / "pg100.txt.gz").write_bytes(b"")
    found = {status.name: status for status in list_datasets(tmp_path)}
    assert found["shakespeare"] == DatasetStatus("shakespeare", str(place))
    assert found["mnist"] == DatasetStatus("mnist", "not here; fetched on first use")
    assert found["digits"] == DatasetStatus("digits", "with the package")


def test_a_check_counts_samples_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("ANARCHIC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "pg100.txt").write_text("To be")
    found = {status.name: status for status in list_datasets(check=True)}
    assert (found["digits"].train, found["digits"].test) == (1_437, 360)
    assert found["shakespeare"].train is None
    assert "pg100.txt" in found["shakespeare"].problem
