"""Random small traces that keep the format's laws."""

from hypothesis import strategies as st

from mooncake_companion.traces import Trace

BLOCK = 4


@st.composite
def traces(draw, max_requests=12):
    """A prefix forest: each request shares some full blocks of an earlier one, then goes its own way."""
    requests, fresh, now_s = [], 0, draw(st.sampled_from([0.0, 0.25, 1e6]))
    for _ in range(draw(st.integers(1, max_requests))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.001, 1 / 3, 3.0]) | st.floats(0, 1e5))
        head = []
        if requests:
            _, tokens, _, blocks = draw(st.sampled_from(requests))
            head = blocks[: draw(st.integers(0, tokens // BLOCK))]
        tokens = BLOCK * len(head) + draw(st.integers(0 if head else 1, 3 * BLOCK))
        blocks = -(-tokens // BLOCK)
        requests.append(
            (now_s, tokens, draw(st.integers(1, 99)), [*head, *range(fresh, fresh + blocks - len(head))])
        )
        fresh += blocks - len(head)
    return Trace.from_requests(requests, block_tokens=BLOCK)
