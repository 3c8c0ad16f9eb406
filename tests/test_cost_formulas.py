"""Every formula of `costs` on a model and a node so small that the answers can be had by hand."""

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion import costs
from mooncake_companion.costs import Calibration, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode
from mooncake_companion.llm import TransformerModel

MODEL = TransformerModel(  # a token: 16 bytes, 512 FLOPs in linear layers, 32 of attention a pair
    title="tiny",
    layers=2,
    model_dim=4,
    query_heads_per_kv_head=2,
    element_bytes=2,
    attention_flops_coefficient=4,
    linear_flops_coefficient=16,
    parameters=1000,
    source="made up",
)
NODE = GpuNode(  # 1024 FLOP/s and 1000 bytes/s in all
    title="tiny",
    gpus=2,
    peak_flops_per_s=512.0,
    hbm_bytes_per_s=500.0,
    hbm_bytes=10_000,
    host_to_device_bytes_per_s=100.0,
    nic_bytes_per_s=100.0,
    source="made up",
)
CONSTANTS = {
    "prefill_overhead_s": 0.5,
    "linear_utilisation": 0.5,
    "attention_utilisation": 0.25,
    "network_utilisation": 0.5,
    "decode_overhead_s": 0.25,
    "hbm_utilisation": 0.5,
}
CALIBRATION = Calibration(**CONSTANTS, host_sequence_s=0.125)
TOKEN_S, PAIR_S = 512 / (0.5 * 1024), 0.5 * 32 / (0.25 * 1024)
WEIGHTS_S, ARITHMETIC_S, CONTEXT_S = 2000 / 500, 512 / 512, 16 / 500
STEP = (0.25, 4.0, 1.0, 0.5, 0.0625, 0.03125)
"""Coefficients of a decode step that floats hold exactly."""


# What is fitted


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("value", [0.0, -0.5])
def test_constants_are_positive(name, value):
    with pytest.raises(InputError, match=rf"Calibration\.{name} must be positive"):
        Calibration(**(CONSTANTS | {name: value}))


def test_only_the_hosts_share_may_be_nothing():
    assert Calibration(**CONSTANTS).host_sequence_s == 0.0
    assert Calibration(**CONSTANTS, host_sequence_s=0.0).host_sequence_s == 0.0
    with pytest.raises(InputError, match=r"^Calibration\.host_sequence_s must be at least 0, got -0\.5$"):
        Calibration(**CONSTANTS, host_sequence_s=-0.5)


def test_the_shipped_constants_can_be_had_without_the_hosts_share():
    whole, without = load_calibration(), load_calibration(host=False)
    assert whole.host_sequence_s > 0
    assert without == dataclasses.replace(whole, host_sequence_s=0.0)


# Prefill


def test_a_prefill_by_hand():
    assert costs.prefill_cost(NODE, MODEL, CALIBRATION) == (0.5, TOKEN_S, PAIR_S) == (0.5, 1.0, 0.0625)
    assert costs.prefill_time(NODE, MODEL, 8, 4, calibration=CALIBRATION) == 0.5 + 4 + 0.0625 * (64 - 16)
    assert costs.prefill_time(NODE, MODEL, 8, calibration=CALIBRATION) == 0.5 + 8 + 0.0625 * 64


def test_prompts_in_one_iteration_share_the_overhead():
    prompts = [(8, 4), (5, 0), (3, 2)]
    tokens, pairs = sum(n - p for n, p in prompts), sum(n**2 - p**2 for n, p in prompts)
    alone_s = [costs.prefill_seconds(0.5, 1.0, 0.0625, *prompt) for prompt in prompts]
    assert costs.batch_prefill_seconds(0.5, 1.0, 0.0625, tokens, pairs) == sum(alone_s) - 2 * 0.5


@pytest.mark.parametrize("longest", range(4))
def test_layer_by_layer_the_longest_of_four_counts(longest):
    parts_s = [1.0, 2.0, 4.0, 8.0]
    parts_s[longest] = 16.0
    assert costs.with_tier_seconds(*parts_s, True) == 16.0
    assert costs.with_tier_seconds(*parts_s, False) == sum(parts_s)


def flow_shop(overhead_s, stages, chunks):
    """When first and last stage are done, chunk by chunk; of each: seconds at a stage, and on the way."""
    ends_s = [overhead_s] + [0.0] * (stages - 1)
    for work_s, hop_s in chunks:
        there_s = 0.0
        for stage in range(stages):
            ends_s[stage] = max(ends_s[stage], there_s) + work_s
            there_s = ends_s[stage] + hop_s
    return ends_s[0], ends_s[-1]


@given(
    input_tokens=st.integers(1, 60),
    cached=st.floats(0, 1, exclude_max=True),
    chunk_tokens=st.integers(1, 25),
    stages=st.integers(2, 5),
    hop_token_s=st.sampled_from([0.0, 0.25, 4.0]),
)
def test_a_pipeline_takes_what_its_chunks_take_one_by_one(
    input_tokens, cached, chunk_tokens, stages, hop_token_s
):
    cached_tokens = int(cached * input_tokens)
    starts = range(cached_tokens, input_tokens, chunk_tokens)
    ends = [*list(starts)[1:], input_tokens]
    chunks = [
        ((TOKEN_S * (last - first) + PAIR_S * (last**2 - first**2)) / stages, hop_token_s * (last - first))
        for first, last in zip(starts, ends, strict=True)
    ]
    handover_s = costs.longest_handover_seconds(
        TOKEN_S, PAIR_S, hop_token_s, stages, input_tokens, cached_tokens, chunk_tokens
    )
    prefill_s = costs.prefill_seconds(0.5, TOKEN_S, PAIR_S, input_tokens, cached_tokens)
    whole_s, first_stage_s = costs.pipeline_seconds(prefill_s, 0.5, handover_s, stages)
    assert handover_s == pytest.approx(max(work_s + hop_s for work_s, hop_s in chunks))
    assert (first_stage_s, whole_s) == pytest.approx(flow_shop(0.5, stages, chunks))


# Decode


def test_coefficients_of_a_decode_step_by_hand():
    arithmetic = (0.25, WEIGHTS_S, ARITHMETIC_S)
    assert costs.decode_cost(NODE, MODEL, CALIBRATION) == (*arithmetic, 0.125, 0.0, CONTEXT_S)
    after = costs.decode_cost(NODE, MODEL, CALIBRATION, overlapping=False)
    assert after == (*arithmetic, 0.0, 0.125, CONTEXT_S)


@pytest.mark.parametrize(
    ("sequences", "context_tokens", "seconds"),
    [
        (2, 32, 0.25 + 4.0 + 1.0 + 2 * 0.0625),  # the weights are read longer than two tokens computed
        (8, 32, 0.25 + 8.0 + 1.0 + 8 * 0.0625),  # eight take longer
    ],
)
def test_a_decode_step_by_hand(sequences, context_tokens, seconds):
    assert costs.decode_seconds(*STEP, sequences, context_tokens) == seconds
    assert costs.mixed_seconds(9.0, 9.0, 9.0, *STEP, sequences, context_tokens, 0, 0, 0) == seconds


def test_a_slow_host_sets_the_pace():
    slow = (*STEP[:3], 8.0, *STEP[4:])
    assert costs.decode_seconds(*slow, 2, 32) == 0.25 + 16.0 + 2 * 0.0625
    assert costs.mixed_seconds(9.0, 9.0, 9.0, *slow, 2, 32, 0, 0, 0) == 0.25 + 16.0 + 2 * 0.0625


def test_chunks_of_prompts_in_a_decode_step_by_hand():
    """Six more tokens in the linear layers, 64 pairs of attention, and two prompts that begin."""
    seconds = costs.mixed_seconds(0.5, 9.0, 0.0625, *STEP, 2, 32, 6, 64, 2)
    assert seconds == 0.25 + (2 + 6) * 1.0 + 1.0 + 64 * 0.0625 + 2 * 0.0625 + 2 * 0.5
    few = costs.mixed_seconds(0.5, 9.0, 0.0625, *STEP, 2, 32, 1, 64, 2)
    assert few == 0.25 + 4.0 + 1.0 + 64 * 0.0625 + 2 * 0.0625 + 2 * 0.5, "the weights are read once"


def test_time_of_a_decode_step_by_hand():
    step_s = costs.decode_step_time(NODE, MODEL, 3, 50, calibration=CALIBRATION)
    assert step_s == 0.25 + WEIGHTS_S + 50 * CONTEXT_S, "the host is done by then"
    after_s = costs.decode_step_time(NODE, MODEL, 3, 50, calibration=CALIBRATION, overlapping=False)
    assert after_s == pytest.approx(step_s + 3 * 0.125)


# Transfer and break-even


def test_a_transfer_by_hand():
    assert costs.transfer_time(100.0, 400, calibration=CALIBRATION) == 400 / (0.5 * 100)
    assert costs.transfer_time(100.0, 400, calibration=CALIBRATION, startup_s=2.0) == 2.0 + 8.0


def test_break_even_by_hand():
    """Equation 2 at p = 4: 1,024 FLOP/s, 16 bytes a token, 32·4² + 512·4 FLOPs."""
    assert costs.break_even_bandwidth(NODE, MODEL, 4) == 1024 * 16 * 4 / (32 * 16 + 512 * 4)


def test_loading_as_fast_as_break_even_takes_as_long_as_computing():
    """What the equation means, with attention and linear layers at the node's peak and no overhead."""
    at_peak = SimpleNamespace(prefill_overhead_s=0.0, linear_utilisation=1.0, attention_utilisation=0.5)
    for tokens in (1, 100, 10_000):
        computing_s = costs.prefill_seconds(*costs.prefill_cost(NODE, MODEL, at_peak), tokens, 0)
        loading_s = 16 * tokens / costs.break_even_bandwidth(NODE, MODEL, tokens)
        assert loading_s == pytest.approx(computing_s)
