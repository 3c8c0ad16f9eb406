import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_strategies import traces

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces import (
    Kind,
    Workload,
    generate,
    generated,
    infinite_cache_hit_ratio,
    infinite_cache_leading_hits,
    load_workload,
    read_jsonl,
    registered,
    standin,
    tick_s,
    write_jsonl,
)
from mooncake_companion.traces.fit import fit_workload
from mooncake_companion.traces.workload import at_levels, format_workload, parse_workload

FITTED = ("conversation", "synthetic")
NAMES = (*registered(), *generated())


def workload(kind=None, **changed):
    kind = kind or Kind(first_tokens=(100.0, 5000.0), output_tokens=((10.0,),))
    return Workload(
        **{"name": "w", "basis": "", "requests": 4000, "duration_s": 4000.0, "kinds": (kind,)} | changed
    )


def made_of(kind=None, seed=0, **changed):
    return generate(workload(kind, **changed), np.random.default_rng(seed))


@settings(max_examples=20)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), requests=st.integers(1, 300))
def test_a_generated_trace_passes_for_a_read_one(name, seed, requests, tmp_path_factory):
    made = generate(load_workload(name), np.random.default_rng(seed), requests=requests)
    path = tmp_path_factory.mktemp("made") / "t.jsonl"
    write_jsonl(made, path)
    assert len(made) == requests
    assert read_jsonl(path) == made


@settings(max_examples=20)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_a_partial_block_is_shared_only_by_equal_prompts(name, seed):
    """An id stands for its tokens, so it cannot be a full block here and a partial one there."""
    made = generate(load_workload(name), np.random.default_rng(seed), requests=400)
    filled = {}
    for request, tokens in enumerate(made.input_tokens.tolist()):
        for at, block in enumerate(made.blocks_of(request).tolist()):
            assert filled.setdefault(block, min(tokens - 512 * at, 512)) == min(tokens - 512 * at, 512)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_alone_decides(name):
    of = load_workload(name)
    one, same, other = (generate(of, np.random.default_rng(seed), requests=500) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("name", NAMES)
def test_a_longer_trace_keeps_the_rate(name):
    of = load_workload(name)
    longer = generate(of, np.random.default_rng(0), requests=2 * of.requests)
    assert longer.duration_s == pytest.approx(2 * of.duration_s, rel=0.01)


def test_a_stand_in_is_there_in_a_moment():
    started_s = time.perf_counter()
    generate(load_workload("conversation"), np.random.default_rng(0))
    assert time.perf_counter() - started_s < 3.0


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
def test_gaps_between_arrivals_vary_as_told(cv):
    """A gamma process; the mean gap is the duration over the number, as the last request ends it."""
    gaps_s = np.diff(made_of(arrival_cv=cv).arrival_s)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.08, abs=0.01)
    assert gaps_s.mean() == pytest.approx(1.0, rel=0.001)


def test_arrivals_follow_the_load_and_gather_into_ticks():
    made = made_of(load_by_time=(1.0, 3.0), tick_s=5.0)
    assert tick_s(made) == 5.0
    assert (made.arrival_s < 2000).sum() == pytest.approx(1000, abs=10)


def test_system_prompts_are_used_by_their_rank():
    """Zipf: of three prompts with skew 1, in proportion to 1, 1/2 and 1/3; each of its own length."""
    kind = Kind(
        prompts=3,
        prompt_skew=1.0,
        prompt_blocks=(7.0, 1.0),
        first_tokens=(5000.0, 6000.0),
        output_tokens=((1.0,),),
    )
    made = made_of(kind)
    uses = np.bincount(made.block_ids[made.block_offsets[:-1]])[[0, 6, 10]]
    np.testing.assert_allclose(uses / len(made), np.array([6, 3, 2]) / 11, atol=0.03)
    hits = infinite_cache_leading_hits(made)
    assert sorted(set(hits.tolist())) == [0, 2, 4, 6]


def test_questions_about_a_document_share_it_and_leave_each_other_out():
    questions, document = 5, 20
    kind = Kind(
        first_tokens=(512.0 * document + 100,),
        output_tokens=((1.0,),),
        continuation_by_part=(1 - 1 / questions,),
        return_age_s=(0.0, 200.0),
        return_rate=((1.0,),) * 3 + ((0.0,),),
        new_tokens=((100.0,),),
    )
    made = made_of(kind)
    hits = infinite_cache_leading_hits(made)
    assert set(hits.tolist()) == {0, document}
    assert (hits > 0).mean() == pytest.approx(1 - 1 / questions, abs=0.02)
    assert np.unique(made.block_ids, return_counts=True)[1].max() == questions


def test_turns_of_a_chat_grow_and_return_at_their_age():
    kind = Kind(
        first_tokens=(1024.0,),
        output_tokens=((1.0,),),
        continuation_by_part=(0.4,),
        return_age_s=(0.0, 30.0, 40.0),
        return_rate=((0.0, 1.0),),
        left_blocks=((0.0,),),
        new_tokens=((512.0,),),
    )
    made = made_of(kind)
    last_s, ages_s = {}, []
    for request in range(len(made)):
        ids = made.blocks_of(request).tolist()
        if ids[0] in last_s:
            ages_s.append(made.arrival_s[request] - last_s[ids[0]][0])
            assert len(ids) == last_s[ids[0]][1] + 1
        last_s[ids[0]] = (made.arrival_s[request], len(ids))
    assert len(ages_s) == pytest.approx(0.4 * len(made), rel=0.02)  # nobody can return in the first 30 s
    assert min(ages_s) >= 30.0
    assert max(ages_s) <= 40.0


def test_kinds_keep_their_shares_and_share_no_block():
    one = Kind(
        name="one",
        share=0.25,
        prompts=1,
        prompt_blocks=(2.0,),
        first_tokens=(2000.0,),
        output_tokens=((1.0,),),
    )
    two = dataclasses.replace(one, name="two", share=0.75, prompt_blocks=(3.0,), first_tokens=(3000.0,))
    made = generate(dataclasses.replace(workload(), kinds=(one, two)), np.random.default_rng(0))
    assert (made.input_tokens == 2000).sum() == 1000
    of_one = (
        made.input_tokens[np.searchsorted(made.block_offsets, np.arange(len(made.block_ids)), "right") - 1]
        == 2000
    )
    assert not set(made.block_ids[of_one].tolist()) & set(made.block_ids[~of_one].tolist())


@pytest.mark.parametrize("name", NAMES)
def test_lengths_have_the_quantiles_of_the_workload(name):
    of = load_workload(name)
    if len(of.kinds) > 1 or not of.kinds[0].input_tokens:
        return
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
    made = np.quantile(standin(name).input_tokens, levels)
    np.testing.assert_allclose(made, at_levels(of.kinds[0].input_tokens, levels), rtol=0.01, atol=1)


def test_the_committed_statistics_are_those_of_the_released_trace(released):
    fitted = parse_workload(format_workload(fit_workload(released), made_by="this test"))
    kept = load_workload(released.name)
    (fitted_kind,), (kept_kind,) = fitted.kinds, kept.kinds
    assert dataclasses.replace(fitted, kinds=(kept_kind,)) == kept
    for field in dataclasses.fields(Kind):
        one, other = getattr(fitted_kind, field.name), getattr(kept_kind, field.name)
        if isinstance(one, str | int | float):
            assert one == other
        else:
            rows = zip(one, other, strict=True) if isinstance(one[0], tuple) else [(one, other)]
            for row, kept_row in rows:
                np.testing.assert_allclose(row, kept_row, rtol=0.005, atol=0.002, err_msg=field.name)


@pytest.mark.parametrize("name", FITTED)
def test_the_stand_in_has_the_known_hit_ratio(name):
    """As the released traces, whose ratios are 37.4 and 65.1 %: a check that needs no trace."""
    known = {"conversation": 0.374, "synthetic": 0.651}
    assert infinite_cache_hit_ratio(standin(name)) == pytest.approx(known[name], abs=0.02)


@pytest.mark.parametrize("name", FITTED)
def test_fitting_a_generated_trace_finds_what_it_was_made_from(name):
    of, again = load_workload(name), fit_workload(standin(name))
    kind, found = of.kinds[0], again.kinds[0]
    assert (again.requests, again.tick_s, found.prompts) == (of.requests, of.tick_s, kind.prompts)
    assert again.arrival_cv == pytest.approx(of.arrival_cv, rel=0.1)
    np.testing.assert_allclose(again.load_by_time, of.load_by_time, atol=0.03)
    np.testing.assert_allclose(found.continuation_by_part, kind.continuation_by_part, atol=0.05)
    middle = slice(4, -4)
    np.testing.assert_allclose(found.input_tokens[middle], kind.input_tokens[middle], rtol=0.02, atol=1)
    np.testing.assert_allclose(found.return_age_s[1:-1], kind.return_age_s[1:-1], rtol=0.3, atol=3.0)


@given(trace=traces())
def test_any_trace_can_be_fitted_and_imitated(trace):
    of = fit_workload(dataclasses.replace(trace, name="t"))
    made = generate(of, np.random.default_rng(0), requests=20)
    assert len(made) == 20


@pytest.mark.parametrize("name", NAMES)
def test_statistics_survive_their_file(name):
    of = load_workload(name)
    assert parse_workload(format_workload(of, made_by="this test")) == of


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("requests = 3993\n", "", r"workload synthetic: .*requests"),
        ("requests = 3993", "requests = 0", "workload synthetic: requests must be positive"),
        ("[[kinds]]", "[[kinds]]\nshare = 0.5", "workload synthetic: the shares of its kinds"),
        ("[[kinds]]", "[[kinds]]\nshare = 1.5", "workload kind all: share must be above 0"),
        ("return_age_s = [0.0, ", "return_age_s = [", "workload kind all: return_age_s must be one more"),
        ("repeat_share = [", "repeat_share = [0.0, ", "workload kind all: .*as many classes"),
        ("input_tokens = [", "input_tokens = []\nignored = [", "workload synthetic: .*ignored"),
    ],
)
def test_wrong_statistics_are_refused_by_name(old, new, message):
    text = format_workload(load_workload("synthetic"), made_by="this test")
    assert old in text
    with pytest.raises(InputError, match=message):
        parse_workload(text.replace(old, new, 1))


def test_there_is_no_stand_in_of_nothing():
    with pytest.raises(CompanionError, match="no stand-in for the nothing trace"):
        load_workload("nothing")
