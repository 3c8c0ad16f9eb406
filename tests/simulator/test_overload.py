"""Each admission policy, one request just inside and one just outside each limit."""

import pytest

from mooncake_companion.costs import decode_step_time
from mooncake_companion.simulator import Admission, Outcome, simulate
from mooncake_companion.simulator.overload import (
    DecodeLoad,
    Limits,
    is_full,
    largest_batch,
    mean_load,
    predicted_load,
    share_of_limits,
)
from mooncake_companion.traces import Trace
from tests.simulator.small import CALIBRATION, MODEL, NODE, cluster

engines = pytest.mark.parametrize("engine", ["reference", "fast"])
FINISHED, AT_ARRIVAL, AFTER_PREFILL = (int(outcome) for outcome in Outcome)


def outcomes(requests, engine, **setting):
    blocks = [(t, n, o, range(100 * k, 100 * k - (-n // 512))) for k, (t, n, o) in enumerate(requests)]
    nodes = cluster(**({"prefill_nodes": 4, "decode_nodes": 1} | setting))
    return simulate(Trace.from_requests(blocks), nodes, engine=engine).outcome.tolist()


def step_s(sequences, context_tokens):
    return decode_step_time(NODE, MODEL, sequences, context_tokens, calibration=CALIBRATION)


def between(sequences):
    """A TBT limit that so many sequences of 1,400 tokens meet, and one more does not."""
    return (step_s(sequences, 1400 * sequences) + step_s(sequences + 1, 1400 * (sequences + 1))) / 2


@engines
@pytest.mark.parametrize("admission", ["baseline", "early", "predictive"])
def test_who_would_have_a_late_first_token_is_turned_away_at_arrival(engine, admission):
    setting = {"prefill_nodes": 1, "admission": admission, "ttft_limit_s": 3.0, "tbt_limit_s": 9.0}
    queue = [(0.0, 1000, 2)] * 4  # a little over a second each
    assert outcomes(queue, engine, **setting) == [FINISHED, FINISHED, AT_ARRIVAL, AT_ARRIVAL]
    assert outcomes(queue, engine, **(setting | {"admission": "none"})) == [FINISHED] * 4


@engines
@pytest.mark.parametrize(
    ("admission", "fate"), [("baseline", AFTER_PREFILL), ("early", AT_ARRIVAL), ("none", FINISHED)]
)
def test_a_decode_node_is_full_when_a_step_would_be_too_long(engine, admission, fate):
    """Two that decode for long, then a third: one limit has room for it, the other has not."""
    requests = [(0.0, 1000, 400), (0.0, 1000, 400), (4.0, 1000, 400)]
    full = outcomes(requests, engine, admission=admission, tbt_limit_s=between(2))
    assert full == [FINISHED, FINISHED, fate]
    roomy = outcomes(requests, engine, admission=admission, tbt_limit_s=between(3))
    assert roomy == [FINISHED] * 3


@engines
def test_prediction_looks_at_the_time_of_the_first_token(engine):
    """The two decode until then if t_d is long, and are taken to be done if it is short: wrongly."""
    requests = [(0.0, 1000, 400), (0.0, 1000, 400), (4.0, 1000, 400)]
    setting = {"admission": "predictive", "tbt_limit_s": between(2)}
    assert outcomes(requests, engine, **setting, predicted_decode_s=30.0)[2] == AT_ARRIVAL
    assert outcomes(requests, engine, **setting, predicted_decode_s=2.0)[2] == AFTER_PREFILL


@engines
def test_early_rejection_sees_nobody_who_still_prefills_and_prediction_does(engine):
    """Three at once: none decodes yet, so early rejection lets all in; prediction knows better.

    The decode node, which looks again, finds that there is no room for the third.
    """
    requests = [(0.0, 1000, 400)] * 3
    setting = {"tbt_limit_s": between(2), "predicted_decode_s": 30.0}
    assert outcomes(requests, engine, admission="early", **setting) == [FINISHED, FINISHED, AFTER_PREFILL]
    predicted = outcomes(requests, engine, admission="predictive", **setting)
    assert predicted == [FINISHED, FINISHED, AT_ARRIVAL]


@engines
@pytest.mark.parametrize("admission", ["early", "predictive"])
def test_conductor_looks_at_the_whole_pool_and_the_node_at_itself(engine, admission):
    """Of two decode nodes one has room for the third request, but the two together have not."""
    requests = [(0.0, 2600, 400), (4.0, 1000, 400), (8.0, 1000, 400)]
    limit_s = (step_s(2, 2 * 1400) + step_s(2, (3000 + 1400) // 2 + 1400)) / 2
    setting = {"decode_nodes": 2, "tbt_limit_s": limit_s, "predicted_decode_s": 30.0}
    assert outcomes(requests, engine, admission="baseline", **setting) == [FINISHED] * 3
    assert outcomes(requests, engine, admission=admission, **setting) == [FINISHED, FINISHED, AT_ARRIVAL]


@engines
@pytest.mark.parametrize("admission", Admission)
def test_a_single_token_never_loads_a_decode_node(engine, admission):
    requests = [(0.0, 1000, 400), (0.0, 1000, 400), (4.0, 1000, 1)]
    assert outcomes(requests, engine, admission=admission, tbt_limit_s=between(2))[2] == FINISHED


@engines
@pytest.mark.parametrize("admission", ["baseline", "early", "predictive"])
def test_who_was_turned_away_leaves_no_trace(engine, admission):
    """Long after the crowd has gone, or was rejected, the next one finds an empty node."""
    crowd, later = [(0.0, 1000, 60)] * 4 + [(1.5, 1000, 60)] * 4, [(300.0, 1000, 60)] * 2
    setting = {"admission": admission, "tbt_limit_s": between(2), "predicted_decode_s": 3.0}
    result = outcomes(crowd + later, engine, **setting)
    assert result.count(FINISHED) < 10
    assert result[8:] == [FINISHED, FINISHED]


def test_full_by_hand():
    limits = Limits(step_s=lambda sequences, tokens: sequences + tokens / 100, tbt_s=5.0, vram_tokens=250)
    assert not is_full(DecodeLoad(2, 100), 100, limits)  # 3 + 2 = 5
    assert is_full(DecodeLoad(2, 100), 101, limits)
    assert is_full(DecodeLoad(0, 200), 51, limits)


def test_predicted_load_by_hand():
    decodes = [(0.0, 10), (4.0, 20), (5.0, 40), (5.1, 80)]
    assert predicted_load(decodes, at_s=5.0, decode_s=5.0) == DecodeLoad(2, 60)


def test_load_of_a_pool_by_hand():
    assert mean_load([DecodeLoad(2, 100), DecodeLoad(1, 0)]) == DecodeLoad(1.5, 50.0)


def test_largest_batch_and_share_of_limits_by_hand():
    limits = Limits(step_s=lambda sequences, tokens: sequences + tokens / 100, tbt_s=10.0, vram_tokens=250)
    assert largest_batch(100, limits) == 2  # memory ends it
    assert largest_batch(20, limits) == 8  # 8 + 1.6 s
    assert share_of_limits(DecodeLoad(2, 200), limits) == 0.8
    assert share_of_limits(DecodeLoad(8, 100), limits) == 0.9
