from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.study import sibling


def test_a_file_that_makes_no_study_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.py").write_text("STUDY = 3\n")
    with pytest.raises(ConfigError, match=r"found 3: end it with STUDY = Study\(\.\.\.\)"):
        sibling(str(tmp_path / "other" / "run.py"), "empty")
