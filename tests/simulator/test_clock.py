"""The clock: what goes first is written down."""

import pytest

from mooncake_companion.simulator.clock import Clock, Order


def test_events_go_by_time_then_order_then_age():
    clock, seen = Clock(), []
    for time_s, order, name in [
        (2.0, Order.FREE, "late"),
        (1.0, Order.ARRIVE, "first arrival"),
        (1.0, Order.ARRIVE, "second arrival"),
        (1.0, Order.FREE, "free"),
    ]:
        clock.at(time_s, order, lambda name=name: seen.append(name))
    clock.run()
    assert seen == ["free", "first arrival", "second arrival", "late"]
    assert clock.now_s == 2.0


@pytest.mark.parametrize("time_s", [0.5, float("nan")])
def test_the_past_is_refused(time_s):
    clock = Clock()
    clock.at(1.0, Order.FREE, lambda: clock.at(time_s, Order.FREE, lambda: None))
    with pytest.raises(ValueError, match=r"the clock shows 1\.0 s"):
        clock.run()
