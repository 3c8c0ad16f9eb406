"""Charts of how far the headlines depend on what the papers leave open."""

import altair as alt
import numpy as np
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish

ALONE, TOGETHER = "alone", "with interactions"
_KINDS = {ALONE: "alone", TOGETHER: "with_interactions"}
_PRESENT_SHARE = 0.02
"""Bars below this share of the widest, or of the variance, are left out."""


def _two_lines(separator: str) -> str:
    """Vega expression that breaks a label at its first separator, for narrow screens."""
    first = f"split(datum.label, '{separator}')[0]"
    return f"[{first}, substring(datum.label, length({first}) + {len(separator)})]"


def tornado(table: pd.DataFrame) -> alt.LayerChart:
    """How far each assumption moves a headline when it is varied alone; the headline from a drop-down.

    Parameters
    ----------
    table : DataFrame
        A row for each headline, assumption and level: ``headline``, ``title``, ``unit``, ``where``,
        ``reported``, ``nominal`` (the headline with nothing varied), ``assumption_title``,
        ``assumption_unit``, ``assumption_nominal``, ``low``, ``high``, ``why``, ``value`` (of the
        assumption), ``result``. Assumptions that hardly move a headline are left out.
    """
    spans = _spans(table)
    chosen = _drop_down(spans)
    base = alt.Chart(spans).encode(
        alt.Y("assumption_title:N")
        .title(None)
        .sort(field="span", op="max", order="descending")
        .axis(labelLimit=120, labelExpr=_two_lines(" "), ticks=False),
        tooltip=[
            alt.Tooltip("assumption_title:N").title("Assumption"),
            alt.Tooltip("range:N").title("Varied"),
            alt.Tooltip("why:N").title("Why so far"),
            alt.Tooltip("least:Q", format=",.3~f").title("Least"),
            alt.Tooltip("at_least:N").title("with"),
            alt.Tooltip("most:Q", format=",.3~f").title("Most"),
            alt.Tooltip("at_most:N").title("with"),
            alt.Tooltip("nominal:Q", format=",.3~f").title("Nothing varied"),
        ],
    )
    x = alt.X("least:Q").title("Modelled (dashed: reported)").scale(zero=False, padding=36, nice=False)
    bars = base.mark_bar(height={"band": 0.6}, color=PALETTE["alone"], opacity=0.8).encode(
        x, alt.X2("most:Q")
    )
    nominal = base.mark_tick(thickness=3, height={"band": 0.85}, color=PALETTE["alone"], opacity=1).encode(
        alt.X("nominal:Q")
    )
    least = base.mark_text(align="right", dx=-5, fontSize=10.5).encode(
        alt.X("least:Q"), alt.Text("at_least:N")
    )
    most = base.mark_text(align="left", dx=5, fontSize=10.5).encode(alt.X("most:Q"), alt.Text("at_most:N"))
    reported = (
        alt.Chart(spans)
        .transform_aggregate(reported="max(reported)", groupby=["title", "where"])
        .mark_rule(color=PALETTE["reported"], strokeDash=[5, 4], strokeWidth=2)
        .encode(
            alt.X("reported:Q"),
            tooltip=[
                alt.Tooltip("where:N").title("Reported in"),
                alt.Tooltip("reported:Q", format=",.3~f").title("Reported"),
            ],
        )
    )
    chart = (bars + reported + nominal + least + most).transform_filter("datum.headline == headline")
    return finish(
        chart.add_params(chosen).properties(height=alt.Step(30)),
        name="sensitivity-one-at-a-time",
        description=(
            "Bars: from the least to the greatest value of a headline as one assumption is varied and the "
            f"others are not; ticks: nothing varied; dashed: reported. {_describe_spans(spans)}"
        ),
        table=spans,
    )


def indices(table: pd.DataFrame) -> alt.LayerChart:
    """Share of a headline's variance by assumption, all varied together; the headline from a drop-down.

    Parameters
    ----------
    table : DataFrame
        A row for each headline and assumption: ``headline``, ``title``, ``where``, ``assumption_title``,
        ``why``; first-order and total Sobol index ``first`` and ``total`` with the ends of their
        intervals, ``first_low`` and so on. Assumptions without a share are left out.
    """
    shares = _shares(table)
    chosen = _drop_down(shares)
    base = alt.Chart(shares).encode(
        alt.Y("assumption_title:N")
        .title(None)
        .sort(field="total", op="max", order="descending")
        .axis(labelLimit=120, labelExpr=_two_lines(" "), ticks=False),
        alt.YOffset("kind:N").sort([ALONE, TOGETHER]),
        tooltip=[
            alt.Tooltip("assumption_title:N").title("Assumption"),
            alt.Tooltip("kind:N").title("Share of the variance"),
            alt.Tooltip("share:Q", format=".0%").title("is"),
            alt.Tooltip("low:Q", format=".0%").title("at least"),
            alt.Tooltip("high:Q", format=".0%").title("at most (95 %)"),
            alt.Tooltip("why:N").title("Why so far"),
        ],
    )
    bars = base.mark_bar(height={"band": 0.85}).encode(
        alt.X("share:Q").title("Share of the variance").axis(format="%", tickCount=6),
        alt.Color("kind:N").title(None).scale(colours(_KINDS)),
    )
    intervals = base.mark_rule(color=PALETTE["reported"], strokeWidth=1.5).encode(
        alt.X("low:Q"), alt.X2("high:Q")
    )
    chart = (bars + intervals).transform_filter("datum.headline == headline")
    return finish(
        chart.add_params(chosen).properties(height=alt.Step(15)),
        name="sensitivity-variance",
        description=(
            "Bars: share of the variance of a headline that is due to each assumption, by itself and with "
            f"its interactions, with 95 % intervals. {_describe_shares(shares)}"
        ),
        table=shares,
    )


def seeds(table: pd.DataFrame) -> alt.LayerChart:
    """How far each headline scatters over generated traces, over what the released trace gives.

    Parameters
    ----------
    table : DataFrame
        ``title``, ``unit``, ``where``, ``replicate``, ``result``, ``nominal`` (on the released trace).
    """
    columns = ["title", "unit", "where", "replicate", "result", "nominal"]
    shown = table[columns].assign(ratio=table["result"] / table["nominal"])
    shown.attrs = table.attrs
    base = alt.Chart(shown).encode(
        alt.Y("title:N")
        .title(None)
        .sort(list(dict.fromkeys(shown["title"])))
        .axis(labelLimit=120, labelExpr=_two_lines(", "), ticks=False)
    )
    dots = base.mark_point(filled=False, size=45, strokeWidth=1.5, color=PALETTE["prediction"]).encode(
        alt.X("ratio:Q").title("Generated over released trace").scale(zero=False),
        tooltip=[
            alt.Tooltip("title:N").title("Headline"),
            alt.Tooltip("where:N").title("In"),
            alt.Tooltip("replicate:Q").title("Generated trace"),
            alt.Tooltip("result:Q", format=",.3~f").title("On it"),
            alt.Tooltip("nominal:Q", format=",.3~f").title("On the released one"),
            alt.Tooltip("unit:N").title("Unit"),
        ],
    )
    one = (
        alt.Chart(shown)
        .transform_aggregate(rows="count()")
        .transform_calculate(one="1")
        .mark_rule(strokeWidth=1, strokeDash=[4, 4], color="#808080")
        .encode(alt.X("one:Q"))
    )
    spread = shown.groupby("title", sort=False)["result"].agg(lambda each: each.std() / abs(each.mean()))
    return finish(
        (one + dots).properties(height=alt.Step(32)),
        name="sensitivity-seeds",
        description=(
            f"Strips of {len(spread)} headlines on {shown['replicate'].nunique()} generated traces, over the "
            f"released trace's. The standard deviation is {spread.min():.1%} to {spread.max():.1%} of the "
            f"mean, the most for: {spread.idxmax()}."
        ),
        table=shown,
    )


def _drop_down(table: pd.DataFrame) -> alt.Parameter:
    titles = table.drop_duplicates("headline").set_index("headline")
    labels = [
        f"{str(row['where']).rpartition(', ')[2]}: {row['title']} ({row['unit']})"
        for _, row in titles.iterrows()
    ]
    return alt.param(
        name="headline",
        value=str(titles.index[0]),
        bind=alt.binding_select(options=list(titles.index), labels=labels, name="Headline "),
    )


def _spans(table: pd.DataFrame) -> pd.DataFrame:
    """The ends between which each assumption moves each headline, nothing varied included."""
    rows = []
    keys = ["headline", "title", "unit", "where", "reported", "nominal", "assumption_title", "why"]
    for key, levels in table.groupby(keys, sort=False):
        first = levels.iloc[0]
        results = [*levels["result"], first["nominal"]]
        values = [*levels["value"], first["assumption_nominal"]]
        least, most = int(np.argmin(results)), int(np.argmax(results))
        unit = f" {first['assumption_unit']}" if first["assumption_unit"] else ""
        rows.append(
            {
                **dict(zip(keys, key, strict=True)),
                "least": results[least],
                "most": results[most],
                "at_least": _short(values[least]),
                "at_most": _short(values[most]),
                "span": results[most] - results[least],
                "range": f"{_short(first['low'])} to {_short(first['high'])}{unit}, "
                f"else {_short(first['assumption_nominal'])}",
            }
        )
    spans = pd.DataFrame(rows)
    widest = spans.groupby("headline")["span"].transform("max")
    spans = spans[spans["span"] >= _PRESENT_SHARE * widest].reset_index(drop=True)
    spans.attrs = table.attrs
    return spans


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each headline, assumption and kind of index; a total of nothing is left out."""
    shown = table[table["total"].ge(_PRESENT_SHARE) | table["first"].ge(_PRESENT_SHARE)]
    keys = ["headline", "title", "unit", "where", "assumption_title", "why", "total"]
    parts = [
        shown[keys].assign(
            kind=kind, share=shown[index], low=shown[f"{index}_low"], high=shown[f"{index}_high"]
        )
        for kind, index in ((ALONE, "first"), (TOGETHER, "total"))
    ]
    shares = pd.concat(parts, ignore_index=True)
    shares.attrs = table.attrs
    return shares


def _short(value: float) -> str:
    """A value in few characters.

    >>> [_short(value) for value in (3_000_000, 131_072, 2048, 0.0811501)]
    ['3M', '131k', '2048', '0.0812']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.0f}k"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _describe_spans(spans: pd.DataFrame) -> str:
    widest = spans.loc[spans.groupby("headline", sort=False)["span"].idxmax()]
    parts = [
        f"{row.title}: reported {row.reported:.3g}, modelled {row.nominal:.3g}, widest by "
        f"{row.assumption_title} from {row.least:.3g} to {row.most:.3g}"
        for row in widest.itertuples()
    ]
    return ". ".join(parts) + "."


def _describe_shares(shares: pd.DataFrame) -> str:
    together = shares[shares["kind"] == TOGETHER]
    most = together.loc[together.groupby("headline", sort=False)["share"].idxmax()]
    parts = [f"{row.title}: most by {row.assumption_title}, {row.share:.0%}" for row in most.itertuples()]
    return ". ".join(parts) + "."
