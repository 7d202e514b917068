"""A file of settings with one section, as the options of `joblens-hub run` name them."""

from __future__ import annotations

import configparser
from collections.abc import Mapping

from condor_joblens.common.errors import JobLensError, printable


def read_section(path: str, section: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """All settings, with defaults for those that are not said. Raises JobLensError with what is wrong, OSError."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="")
    with open(path, encoding="utf-8", errors="replace") as file:
        try:
            parser.read_string(file.read())
        except configparser.Error as error:
            raise JobLensError(f"{path} can't be read: {printable(str(error), 200)}") from None
    if parser.sections() != [section]:
        raise JobLensError(f"{path} has one section: [{section}]")
    given = {**defaults, **parser[section]}
    unknown = set(given) - set(defaults)
    if unknown:
        raise JobLensError(f"{path}: there is no {printable(min(unknown))}: there are {', '.join(defaults)}")
    return given
