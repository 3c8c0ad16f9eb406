import json
import struct
import zlib

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import theme
from mooncake_companion.publish import figures


@pytest.fixture
def spec():
    table = pd.DataFrame({"x": [1, 2], "y": [0.5, None], "who": ["a", 'b, "c"']})
    table.attrs["provenance"] = {"trace_source": "made up <here> & there"}
    line = alt.Chart(table).mark_line(clip=True).encode(x="x:Q", y="y:Q")
    chart = line + line.mark_point()
    return theme.finish(chart, name="two-points", description="Two points.", table=table).to_dict()


def test_the_same_figure_gives_the_same_bytes(spec, tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        figures.write_figure(spec, tmp_path / folder, figures.WRITERS)
    written = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert written == sorted(f"two-points.{ending}" for ending in (*figures.WRITERS, "csv.json"))
    for name in written:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_the_table_is_what_was_drawn(spec):
    assert figures.to_csv(spec) == 'who,x,y\na,1,0.5\n"b, ""c""",2,\n'
    assert figures.to_csv(json.loads(figures.to_json(spec))) == figures.to_csv(spec)


def test_svg_and_png_carry_their_origin(spec):
    assert "<metadata>" in figures.to_svg(spec)
    assert "made up &lt;here> &amp; there" in figures.to_svg(spec)
    chunks, data = {}, figures.to_png(spec)[8:]
    while data:
        (size,) = struct.unpack(">I", data[:4])
        body, checksum = data[4 : 8 + size], data[8 + size : 12 + size]
        assert struct.pack(">I", zlib.crc32(body)) == checksum
        chunks[body[:4]] = body[4:]
        data = data[12 + size :]
    keyword, _, text = chunks[b"iTXt"].partition(b"\0")
    assert keyword == b"provenance"
    assert json.loads(text.lstrip(b"\0"))["trace_source"] == "made up <here> & there"


def test_every_table_of_a_figure_is_found(spec):
    other = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q").to_dict()
    assert len(figures.tables(spec)) == 1
    assert len(figures.tables({**spec, "layer": [*spec["layer"], other]})) == 2
