"""What is shown of brokers that do not say how their logs are copied."""

from __future__ import annotations

from mqcore.admin.ha_commands import COLUMNS
from mqcore.admin.ha_untold import UntoldBroker, in_words, untold_records

MASTER = UntoldBroker("10.0.0.1:10911", "a", 0, "SYNC_MASTER", 1000)


def test_a_slave_is_behind_by_what_its_master_has_more() -> None:
    slaves = [
        UntoldBroker(f"10.0.0.{number}:10911", "a", number, "SLAVE", end) for number, end in ((2, 900), (3, 1001))
    ]
    rows = list(untold_records([MASTER, *slaves], COLUMNS))
    assert [(row["brokerId"], row["peer"], row["behindBytes"]) for row in rows] == [
        (0, None, None), (2, MASTER.address, 100), (3, MASTER.address, 0),
    ]  # fmt: skip
    assert {row["state"] for row in rows} == {"NOT TOLD"}
    assert {*rows[0]} == {*COLUMNS}


def test_what_is_not_known_is_left_out() -> None:
    alone = UntoldBroker("10.0.0.2:10911", "a", 1, None, 900)
    other = UntoldBroker("10.0.0.3:10911", "b", 1, "SLAVE", None)
    rows = list(untold_records([MASTER, other, UntoldBroker("10.0.0.4:1", "a", 2, "SLAVE", None)], COLUMNS))
    assert [row["behindBytes"] for row in rows] == [None, None, None]
    (row,) = untold_records([alone], COLUMNS)
    assert (row["peer"], row["behindBytes"], row["end"]) == (None, None, 900)


def test_they_are_named() -> None:
    assert list(in_words([])) == []
    (line,) = in_words([MASTER, UntoldBroker("10.0.0.3:10911", "b", 0, None, None)])
    assert line.startswith("a (10.0.0.1:10911), b (10.0.0.3:10911): no broker of mqcore")
