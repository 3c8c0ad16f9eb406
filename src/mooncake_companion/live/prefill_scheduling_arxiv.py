"""arXiv 2407.00079, Figure 8, on a slice of the report's own trace: time to first token by routing policy."""

import dataclasses
from dataclasses import dataclass

from mooncake_companion.live import prefill_scheduling
from mooncake_companion.live.outcome import Outcome, Progress
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(prefill_scheduling.Params):
    """As of `prefill_scheduling`; here the split into 8 and 8 nodes is stated (section 6.2)."""

    trace: str = parameter("arxiv", help="registered trace, or the path of a JSONL file")


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """As `prefill_scheduling.run`, for the figure of this experiment."""
    outcome = prefill_scheduling.run(params, sliced, progress)
    return dataclasses.replace(
        outcome, fixed={"split_of_prefill_scheduling_ttft_arxiv": params.prefill_nodes}
    )
