"""The table of layers that contributors read is the contract that `make lint` holds them to."""

import re
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def test_the_table_of_layers_is_the_contract():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    text = (CHECKOUT / "CONTRIBUTING.md").read_text("utf-8")
    first_cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    told = [set(re.findall(r"`(\w+)`", cell)) for cell in first_cells]
    assert told == [set(layer.split(" | ")) for layer in contract["layers"]]
