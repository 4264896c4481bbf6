from __future__ import annotations

import io
import json

from anarchic.server.monitoring import JsonLog


def test_a_line_is_an_object_without_secrets():
    stream = io.StringIO()
    log = JsonLog(stream)
    log("pushed", worker="ann", Token="ann.s3cret", set_cookie="s3cret", version=3)
    log("stopped", reason=ValueError("a\nb"))
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time") > 1e9
    hidden = {"Token": "***", "set_cookie": "***"}
    assert first == {"event": "pushed", "worker": "ann", "version": 3, **hidden}
    assert second["reason"] == "a\nb"  # on one line all the same
    assert "s3cret" not in stream.getvalue()
