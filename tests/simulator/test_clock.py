"""The clock: what goes first is written down."""

import pytest

from mooncake_companion.simulator.clock import Clock, Order


def test_events_go_by_time_then_order_then_number():
    clock, seen = Clock(), []
    for time_s, order, number in [
        (2.0, Order.TRANSFER, 0),
        (1.0, Order.ARRIVE, 2),
        (1.0, Order.ARRIVE, 1),
        (1.0, Order.STEP, 9),
        (1.0, Order.PREFILL, 9),
        (1.0, Order.TRANSFER, 9),
    ]:
        clock.at(time_s, order, number, lambda event=(time_s, order, number): seen.append(event))
    clock.run()
    assert seen == [
        (1.0, Order.TRANSFER, 9),
        (1.0, Order.PREFILL, 9),
        (1.0, Order.STEP, 9),
        (1.0, Order.ARRIVE, 1),
        (1.0, Order.ARRIVE, 2),
        (2.0, Order.TRANSFER, 0),
    ]
    assert clock.now_s == 2.0


@pytest.mark.parametrize("time_s", [0.5, float("nan")])
def test_the_past_is_refused(time_s):
    clock = Clock()
    clock.at(1.0, Order.STEP, 0, lambda: clock.at(time_s, Order.STEP, 0, lambda: None))
    with pytest.raises(ValueError, match=r"the clock shows 1\.0 s"):
        clock.run()
