"""Units of a consume queue, and which of them answer a pull: the same for both twins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.queues import units as fast
from mqcore.layout import CONSUME_QUEUE_UNIT
from mqcore.store.queues import units as plain
from mqcore.store.queues.units import ScanFlag, ScanLimits, Unit

TWINS = [pytest.param(plain, id="python"), pytest.param(fast, id="cython")]
twins = pytest.mark.parametrize("twin", TWINS)

GIB = 1 << 30
LIMITS = ScanLimits(
    count_max=32, commit_log_min=0, commit_log_max=100 * GIB, commit_log_file_size=GIB, in_memory_bytes_max=200 * GIB
)


def pack(*units: tuple[int, int, int]) -> bytes:
    return b"".join(CONSUME_QUEUE_UNIT.struct.pack(*unit) for unit in units)


def run_of(count: int, size: int = 100, first: int = 0) -> bytes:
    return pack(*((first + number * size, size, number) for number in range(count)))


@twins
def test_golden_bytes_of_a_unit(twin):
    golden = bytes.fromhex("0000000040000000 0000008E FFFFFFFF80000000")
    assert twin.encode_unit(1 << 30, 142, -(1 << 31)) == golden
    assert twin.decode_unit(golden) == Unit(1 << 30, 142, -(1 << 31))


@twins
def test_units_are_numbered_from_zero(twin):
    data = pack((1, 2, 3), (4, 5, 6)) + b"\xff" * 19
    assert twin.decode_unit(data, 1) == Unit(4, 5, 6)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            twin.decode_unit(data, index)


@twins
@pytest.mark.parametrize(
    ("units", "count"),
    [
        ([], 0),
        ([(0, 1, 0)], 1),
        ([(0, 1, 0), (0, 0, 0), (5, 5, 5)], 1),
        ([(0, 1, 0), (-1, 5, 0)], 1),
        ([(0, 1, 0), (1, -5, 0)], 1),
        ([(0, 0x7FFFFFFF, 0), (7, 1, 0)], 2),
    ],
)
def test_the_first_unit_without_size_or_with_a_negative_offset_ends_the_queue(twin, units, count):
    assert twin.valid_units(pack(*units)) == count


@twins
def test_a_pull_gets_at_most_what_it_asked_for(twin):
    chosen = twin.choose(run_of(10), replace(LIMITS, count_max=3))
    assert chosen.ranges == ((0, 100), (100, 100), (200, 100))
    assert (chosen.units_examined, chosen.bytes_total, chosen.physical_offset_last) == (3, 300, 300)
    assert chosen.flags == ScanFlag.FOUND | ScanFlag.FULL


@twins
def test_a_pull_ends_with_the_units(twin):
    chosen = twin.choose(run_of(2), LIMITS)
    assert (len(chosen.ranges), chosen.units_examined, chosen.flags) == (2, 2, ScanFlag.FOUND)


@twins
def test_no_units_give_nothing(twin):
    chosen = twin.choose(b"", LIMITS)
    assert (chosen.ranges, chosen.units_examined, chosen.physical_offset_last, chosen.flags) == ((), 0, -1, 0)


@twins
def test_more_than_thirty_two_in_memory_are_never_given(twin):
    assert len(twin.choose(run_of(100), replace(LIMITS, count_max=100)).ranges) == 32


@twins
def test_one_message_passes_whatever_its_size(twin):
    chosen = twin.choose(run_of(3, size=300_000), LIMITS)
    assert chosen.ranges == ((0, 300_000),)
    assert chosen.units_examined == 1


@twins
def test_bytes_in_memory_are_bounded(twin):
    chosen = twin.choose(run_of(32, size=100_000), LIMITS)
    assert chosen.bytes_total == 200_000


@twins
def test_what_lies_far_back_is_given_in_small_batches_and_suggests_the_slave(twin):
    far = replace(LIMITS, in_memory_bytes_max=1000, commit_log_max=100_000)
    chosen = twin.choose(run_of(20), far)
    assert len(chosen.ranges) == 8
    assert chosen.flags == ScanFlag.FOUND | ScanFlag.FULL | ScanFlag.SUGGEST_SLAVE
    assert twin.choose(run_of(20, size=30_000), replace(far, commit_log_max=10_000_000)).bytes_total == 60_000


@twins
def test_tag_codes_are_compared_as_32_bits(twin):
    units = pack((0, 10, 5), (10, 10, -7), (20, 10, (1 << 32) + 5), (30, 10, 6))
    assert twin.choose(units, LIMITS, [5]).ranges == ((0, 10), (20, 10))
    assert twin.choose(units, LIMITS, [-7, 6]).ranges == ((10, 10), (30, 10))
    nothing = twin.choose(units, LIMITS, [99])
    assert (nothing.ranges, nothing.units_examined, nothing.flags) == ((), 4, 0)


@twins
def test_a_unit_that_points_into_an_ext_file_matches_every_tag(twin):
    units = pack((0, 10, -(1 << 63) + 80), (10, 10, -(1 << 31) - 1), (20, 10, -(1 << 31)))
    assert twin.choose(units, LIMITS, [1]).ranges == ((0, 10), (10, 10))


@twins
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_every_one_of_many_tags_is_found(twin, count):
    codes = [number * 37 - 400 for number in range(count)]
    units = pack(*((index * 10, 10, code) for index, code in enumerate(codes)))
    many = replace(LIMITS, count_max=100, count_in_memory_max=100)
    assert len(twin.choose(units, many, codes).ranges) == count
    assert twin.choose(units, many, [code + 1 for code in codes]).ranges == ()


@twins
def test_a_record_that_is_gone_skips_the_rest_of_its_commit_log_file(twin):
    limits = replace(LIMITS, commit_log_min=2000, commit_log_max=10_000, commit_log_file_size=1000)
    units = pack((1100, 100, 0), (1200, 100, 0), (1900, 100, 0), (2000, 100, 0))
    chosen = twin.choose(units, limits)
    assert chosen.ranges == ((2000, 100),)
    assert (chosen.units_examined, chosen.flags) == (4, ScanFlag.FOUND)
    gone = twin.choose(units[:60], limits)
    assert (gone.units_examined, gone.flags) == (3, ScanFlag.REMOVING)


@twins
def test_a_record_that_is_not_readable_yet_is_not_given(twin):
    chosen = twin.choose(pack((0, 100, 0), (100, 101, 0)), replace(LIMITS, commit_log_max=200))
    assert (chosen.ranges, chosen.units_examined) == (((0, 100),), 2)


@twins
def test_pre_filled_places_are_passed_over(twin):
    limits = replace(LIMITS, commit_log_max=1_000_000, commit_log_file_size=1000)
    chosen = twin.choose(pack((0, 0x7FFFFFFF, 0), (0, 0x7FFFFFFF, 0), (5000, 10, 0)), limits)
    assert (chosen.ranges, chosen.units_examined) == (((5000, 10),), 3)


@twins
def test_eight_hundred_units_are_examined_unless_more_are_asked_for(twin):
    units = pack(*((index, 1, 0) for index in range(1000)))
    assert twin.choose(units, LIMITS, [1]).units_examined == 800
    assert twin.choose(units, replace(LIMITS, count_max=900), [1]).units_examined == 900


units = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5000), st.sampled_from([-1, -(1 << 63), (1 << 63) - 1, (1 << 62) + 1])),
        st.one_of(st.integers(1, 500), st.sampled_from([0, -1, 0x7FFFFFFF, -(1 << 31)])),
        st.one_of(st.integers(-3, 3), st.sampled_from([-(1 << 63), -(1 << 31) - 1, (1 << 63) - 1])),
    ),
    max_size=30,
)
limits = st.builds(
    ScanLimits,
    count_max=st.integers(1, 20),
    commit_log_min=st.integers(0, 3000),
    commit_log_max=st.integers(0, 6000),
    commit_log_file_size=st.integers(100, 2000),
    in_memory_bytes_max=st.integers(0, 6000),
    bytes_in_memory_max=st.integers(1, 3000),
    count_in_memory_max=st.integers(1, 20),
    bytes_on_disk_max=st.integers(1, 1000),
    count_on_disk_max=st.integers(1, 10),
)


@given(units=units, limits=limits, codes=st.lists(st.integers(-3, 3), max_size=4, unique=True))
def test_both_twins_choose_the_same_of_any_units(units, limits, codes):
    data = pack(*units)
    assert plain.choose(data, limits, codes) == fast.choose(data, limits, codes)
    assert plain.valid_units(data) == fast.valid_units(data)


@given(units=units, limits=limits)
def test_what_is_chosen_lies_in_the_readable_log_and_in_order(units, limits):
    chosen = fast.choose(pack(*units), limits)
    assert chosen.bytes_total == sum(size for _, size in chosen.ranges)
    for physical_offset, size in chosen.ranges:
        assert size > 0
        assert limits.commit_log_min <= physical_offset <= physical_offset + size <= limits.commit_log_max
    examined = [(unit[0], unit[1]) for unit in units[: chosen.units_examined]]
    remaining = iter(examined)
    assert all(chosen_range in remaining for chosen_range in chosen.ranges)
