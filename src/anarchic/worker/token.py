"""The file that holds a worker's token."""

from __future__ import annotations

import os

from anarchic.core.reading import read_file, reason
from anarchic.errors import ConfigError

MAX_BYTES = 4_096


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file that ``anarchic token add`` was written to."""
    try:
        return str(read_file(path, most=MAX_BYTES), "utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"The token file {path} cannot be read ({reason(error)}): give the file that 'anarchic "
            "token add' was written to."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} holds no token but other bytes: give the file that 'anarchic token add' was "
            "written to."
        ) from error
