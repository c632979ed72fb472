# SPDX-License-Identifier: Apache-2.0
"""Where the package has the broker's files: beside itself, or where CTXBROKER_HOME says."""

from __future__ import annotations

import os
import pathlib

from ._errors import MissingFileError

#: The version of the broker's interface, as its file name has it.
SONAME = "libctxbroker.so.0"


def home() -> pathlib.Path:
    """Returns the folder that has lib/ and bin/."""
    chosen = os.environ.get("CTXBROKER_HOME")
    return pathlib.Path(chosen).absolute() if chosen else pathlib.Path(__file__).resolve().parent


def find(*parts: str) -> pathlib.Path:
    """Returns a file below home(). Raises MissingFileError when it is not there."""
    file = home().joinpath(*parts)
    if file.exists():
        return file
    raise MissingFileError(
        f"{file} is missing. The wheel of ctxbroker brings it. To use another copy, set CTXBROKER_HOME to the "
        "folder of an installation or of a build that has lib/ and bin/"
    )


def plugin_folders() -> "list[pathlib.Path]":
    """Returns where the sample plug-ins are, in a wheel or an installation, or in a build."""
    folders = [home() / "lib" / "ctxbroker" / "plugins", home() / "plugins"]
    return [one for one in folders if one.is_dir()]
