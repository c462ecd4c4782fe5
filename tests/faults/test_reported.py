"""Where each fault that users reported in other gateways is tried (wire/FAULTS.md of the shared sources, by its numbers)."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.fixtures import FIXTURES

FAULTS = FIXTURES.parent / "wire" / "FAULTS.md"
CODECS = "tests.matrix.test_faults"

OF_STREAMS: dict[int, str] = {
    14: "tests.engine.test_faults:test_no_finish_reason_and_no_done_14",
    23: "tests.gateway.test_usage:test_a_caller_who_leaves_is_billed_for_what_came",
    27: "tests.engine.test_faults:test_cut_half_way_27a",
    29: "tests.engine.test_faults:test_a_fault_of_ours_in_mid_stream_29",
    30: "tests.engine.test_failover:test_once_something_was_seen_nobody_takes_over",
    31: "tests.faults.test_wire:test_in_the_midst_the_error_is_told",
    34: "tests.engine.test_faults:test_an_error_in_band_is_an_error_in_any_position_34",
    35: "tests.gateway.test_life:test_failures_after_the_first_event_are_told_in_band",
    37: "tests.gateway.test_life:test_a_caller_who_leaves_cancels_the_provider",
    39: "tests.gateway.test_life:test_a_caller_who_never_reads_is_given_up",
    40: "tests.engine.test_faults:test_a_caller_who_leaves_before_the_first_token_37_40",
    41: "tests.engine.test_faults:test_memory_is_bounded_whatever_the_caller_does_41",
    42: "tests.engine.test_faults:test_silence_half_way_27b_42",
    48: "tests.gateway.test_nginx:test_events_arrive_one_by_one",
}
"""Fault of time, money or connections: the module and the test of it."""

UNBUILT: dict[int, str] = {
    24: "answers to streams are not cached",
    53: "streams cannot be resumed",
    55: "streams cannot be resumed",
    56: "streams cannot be resumed",
}
"""Faults of what the gateway does not have: whoever builds it takes the fault out of this table."""


def of_codecs() -> set[int]:
    """The faults that stand in the names of the tests of formats and framings."""
    names = vars(importlib.import_module(CODECS))
    found = (re.match(r"test((?:_[0-9]+)+)_", name) for name in names)
    return {int(number) for match in found if match for number in match[1].split("_") if number}


def test_every_fault_is_tried() -> None:
    if not FAULTS.is_file():
        pytest.skip(f"the list of reported faults is not on this machine ({FAULTS})")
    listed = {int(number) for number in re.findall(r"^(\d+)\. \*\*", FAULTS.read_text(), re.MULTILINE)}
    assert len(listed) == 40
    assert of_codecs() | OF_STREAMS.keys() | UNBUILT.keys() == listed
    assert not UNBUILT.keys() & (of_codecs() | OF_STREAMS.keys())


@pytest.mark.parametrize("place", OF_STREAMS.values())
def test_where_it_is_tried(place: str) -> None:
    module, _, name = place.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
