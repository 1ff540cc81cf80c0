"""Counts the lines of one of the files beside it."""

import json
import pathlib
import sys

name = json.load(sys.stdin)["file"]
here = pathlib.Path(__file__).parent
if name not in {path.name for path in here.iterdir()}:
    sys.exit(f"there is no file {name} here")
print(f"{name} has {len((here / name).read_bytes().splitlines())} lines")
