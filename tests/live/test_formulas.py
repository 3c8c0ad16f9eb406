"""The live figures of single actions, which follow from formulas, against the experiments."""

from tests.live.small import alike

from mooncake_companion import reported
from mooncake_companion.experiments import two_phases
from mooncake_companion.live.answers import compute
from mooncake_companion.live.two_phases import BATCHES, LENGTHS


def modelled(table):
    return table[table["origin"] == "modelled"]


def test_both_phases_are_the_experiments():
    given = {
        "node": "h800",
        "model": "qwen2.5-72b",
        "decode_context_tokens": "5000",
        "waits_for_host": "true",
    }
    outcome, told = compute("two-phases", given, None)
    params = two_phases.Params(
        node="h800", model="qwen2.5-72b", decode_context_tokens=5000, waits_for_host=True
    )
    alike(outcome.rows, modelled(two_phases.run(params)))
    assert "waits_for_host = True" in told
    assert f"in {outcome.rows[len(LENGTHS)]['normalized_latency']:.0%} of the time" in outcome.description


def test_both_phases_have_the_points_of_the_figure():
    drawn = reported.figure("arxiv_fig02").groupby("stage")
    assert [1024 * k for k in drawn.get_group("prefill")["sequence_length_k"]] == list(LENGTHS)
    assert drawn.get_group("decoding")["batch_size"].tolist() == list(BATCHES)
