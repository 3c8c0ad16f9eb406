"""One request of the slice, as Conductor weighs it: FAST'25, section 4.1 and Algorithm 1."""

from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.live import prefill_scheduling
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.overload import limits_of
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.parameters import parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.overload import DecodeLoad, mean_load, share_of_limits
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.simulator.scheduler import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(prefill_scheduling.Params):
    """The request, and the cluster of `prefill_scheduling`."""

    request: int = parameter(
        400, low=0, high=MOST_REQUESTS - 1, help="which request of the trace, counted from 0"
    )


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Every candidate of one request, with all terms; columns as of `experiments.walkthrough`."""
    progress(0, 1)
    request = min(params.request, len(sliced.requests) - 1)
    head = sliced.head(request + 1, speedup=params.arrival_speedup)
    cluster = params.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes)
    records = reference.replay(
        head.requests, cluster, block_tokens=head.block_tokens, draws=head.draws, recorded={request}
    ).records
    scenario = f"Request {request}"
    facts, rows = _facts(head.requests, records, cluster), _rows(head.requests, records, cluster)
    return Outcome(
        rows=[{**row, "scenario": scenario, "request": request, **facts} for row in rows],
        description=_description(request, rows),
        fixed={"walk_scenario": scenario},
        replayed=len(head.requests),
    )


def _rows(requests: Sequence[Request], records: Sequence[Record], cluster: Cluster) -> list[Row]:
    asked, record = requests[-1], records[-1]
    rows: list[Row] = [
        {
            "pool": "prefill",
            "node": choice.node,
            "wins": choice == record.choice,
            "local_tokens": choice.local_tokens,
            "fetched_tokens": choice.fetched_tokens,
            "source_node": choice.source_node,
            "computed_tokens": asked.input_tokens - choice.local_tokens - choice.fetched_tokens,
            "queue_s": choice.queue_s,
            "transfer_s": choice.transfer_s,
            "prefill_s": choice.prefill_s,
            "ttft_s": choice.ttft_s,
        }
        for choice in record.choices
    ]
    shares = [
        share_of_limits(_with(load, asked), limits_of(cluster))
        for load in _running(requests, records, cluster)
    ]
    return rows + [
        {
            "pool": "decode",
            "wins": other.node == record.decode_node,
            **other._asdict(),
            "running_share": share,
            "headroom": 1 - share,
        }
        for other, share in zip(record.decode_choices, shares, strict=True)
    ]


def _facts(requests: Sequence[Request], records: Sequence[Record], cluster: Cluster) -> Row:
    asked = requests[-1]
    loads = _running(requests, records, cluster)
    return {
        "arrival_s": asked.arrival_s,
        "input_tokens": asked.input_tokens,
        "output_tokens": asked.output_tokens,
        "decode_nodes": cluster.decode_nodes,
        "rejected": False,
        "pool_share": share_of_limits(_with(mean_load(loads), asked), limits_of(cluster)),
    }


def _running(requests: Sequence[Request], records: Sequence[Record], cluster: Cluster) -> list[DecodeLoad]:
    """What has its first token on each decode node, and is not done, when the last request arrives."""
    now_s = requests[-1].arrival_s
    loads = [DecodeLoad(0, 0)] * cluster.decode_nodes
    for request, record in zip(requests, records, strict=True):
        if request.output_tokens > 1 and record.first_token_s <= now_s < record.finish_s:
            loads[record.decode_node] = _with(loads[record.decode_node], request)
    return loads


def _with(load: DecodeLoad, request: Request) -> DecodeLoad:
    return DecodeLoad(load.sequences + 1, load.tokens + request.input_tokens + request.output_tokens)


def _description(request: int, rows: Sequence[Row]) -> str:
    prefill, decode = (row for row in rows if row["wins"])
    held, fetched = prefill["local_tokens"], prefill["fetched_tokens"]
    return (
        f"Candidates that the scheduler weighs for request {request}, computed in this browser: prefill on "
        f"node {prefill['node']} with {held:,} tokens held and {fetched:,} fetched, first token in "
        f"{prefill['ttft_s']:.2f} s; decode on node {decode['node']}."
    )
