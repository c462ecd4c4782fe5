"""W3C Trace Context, by the tables of the recommendation."""

from __future__ import annotations

import re

import pytest

from headrace.upstream import TraceContext

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("header", "written"),
    [
        (VALID, VALID),
        (f" \t{VALID} ", VALID),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
        (f"00-{TRACE}-{PARENT}-03", f"00-{TRACE}-{PARENT}-03"),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-03"),
        (f"00-{TRACE}-{PARENT}-08", f"00-{TRACE}-{PARENT}-00"),
        (f"01-{TRACE}-{PARENT}-01", VALID),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", VALID),
        (f"fe-{TRACE}-{PARENT}-01-", VALID),
    ],
)
def test_valid(header: str, written: str) -> None:
    context = TraceContext.parse(header)
    assert context is not None
    assert context.traceparent == written


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        VALID[:-1],
        f"{VALID}1",
        f"{VALID}-x",
        f"{VALID}-",
        f"{VALID}\n",
        f"{VALID},{VALID}",
        f"ff-{TRACE}-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01x",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT.upper()}-01",
        f"00-{TRACE}-{PARENT}-0A",
        f"0A-{TRACE}-{PARENT}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}0-01",
        f"00_{TRACE}-{PARENT}-01",
        f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{PARENT}-01",
    ],
)
def test_invalid_restarts_the_trace(header: str) -> None:
    assert TraceContext.parse(header, "a=1") is None


def test_a_new_trace() -> None:
    one, two = TraceContext.new(), TraceContext.new(sampled=False)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", one.traceparent)
    assert two.traceparent.endswith("-00")
    assert one.trace_id != two.trace_id
    assert one.tracestate == ""
    assert TraceContext.parse(one.traceparent) == one


def test_a_child_keeps_all_but_the_parent_id() -> None:
    context = TraceContext.parse(VALID, "a=1")
    assert context is not None
    one, two = context.child(), context.child()
    assert len({context.parent_id, one.parent_id, two.parent_id}) == 3
    assert re.fullmatch(r"[0-9a-f]{16}", one.parent_id)
    assert (one.trace_id, one.flags, one.tracestate) == (TRACE, 1, "a=1")


def test_ids_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([bytes(16), b"\1" * 16, bytes(8), b"\2" * 8])
    monkeypatch.setattr("os.urandom", lambda _: next(values))
    assert TraceContext.new().traceparent == f"00-{'01' * 16}-{'02' * 8}-01"


@pytest.mark.parametrize(
    ("header", "written"),
    [
        ("", ""),
        ("a=1", "a=1"),
        ("a=1 ,\tb=2,, c=x y ,", "a=1,b=2,c=x y"),
        ("t@v=1,0x=2,a_-*/=3", "t@v=1,0x=2,a_-*/=3"),
        ("A=1", ""),
        ("a=1,b", ""),
        ("a=", ""),
        ("=1", ""),
        ("a=b=c", ""),
        ("a=é", ""),
        ("a=\x01", ""),
        ("a=1,_b=2", ""),
        (f"{'k' * 256}=1", f"{'k' * 256}=1"),
        (f"{'k' * 257}=1", ""),
        (f"a={'v' * 256}", f"a={'v' * 256}"),
        (f"a={'v' * 257}", ""),
        (",".join(f"k{i}=1" for i in range(32)), ",".join(f"k{i}=1" for i in range(32))),
        (",".join(f"k{i}=1" for i in range(33)), ""),
    ],
)
def test_tracestate(header: str, written: str) -> None:
    context = TraceContext.parse(VALID, header)
    assert context is not None
    assert context.traceparent == VALID  # a broken tracestate does not touch it
    assert context.tracestate == written


def test_tracestate_loses_long_members_first_then_the_rightmost() -> None:
    long = f"long={'x' * 130}"
    short = [f"s{i:02}={'y' * 36}" for i in range(13)]  # 40 characters each
    state = ",".join([*short[:2], long, *short[2:]])
    context = TraceContext.parse(VALID, state)
    assert context is not None
    assert context.tracestate == ",".join(short[:12])  # 12 * 41 - 1 = 491, with the 13th 532
    assert TraceContext.parse(VALID, f"{long},{short[0]}").tracestate == f"{long},{short[0]}"  # type: ignore[union-attr]  # valid
