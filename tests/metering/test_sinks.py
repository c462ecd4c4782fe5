"""The sinks beside the ledger: a real Redis, and a file that is moved away while it is written."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headrace.metering import FileSink, LedgerSink, RedisSink
from headrace.metering.record import decode
from tests.metering.samples import record
from tests.services import redis_server


def test_a_redis_stream_has_each_record_as_an_event(redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    stream = f"test:{uuid.uuid4().hex}"
    sink = RedisSink(redis_url, stream)
    sent = [record("1"), record("2", model="\ud800", request_id="a\udfff")]
    sink.deliver(sent)
    sink.deliver([])
    sink.close()
    client = redis.Redis.from_url(redis_url)
    entries = [fields for _, fields in client.xrange(stream)]
    client.delete(stream)
    client.close()
    assert [fields[b"event"] for fields in entries] == [b"llm.usage.recorded"] * 2
    assert [fields[b"request_id"] for fields in entries] == [b"req-1", b"a?"]
    assert decode(entries[0][b"record"]) == sent[0]
    assert decode(entries[1][b"record"]).model == "\ufffd"


def test_a_redis_stream_is_trimmed(redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    stream = f"test:{uuid.uuid4().hex}"
    sink = RedisSink(redis_url, stream, max_length=100)
    for batch in range(10):
        sink.deliver([record(f"{batch}-{number}") for number in range(100)])
    sink.close()
    client = redis.Redis.from_url(redis_url)
    length, newest = client.xlen(stream), client.xrevrange(stream, count=1)[0][1]
    client.delete(stream)
    client.close()
    assert 100 <= length < 500, "about the length that was asked for"
    assert decode(newest[b"record"]).record_id == "9-99"


def test_redis_may_be_down_at_the_beginning_and_in_between() -> None:
    redis = pytest.importorskip("redis")
    with redis_server() as server:
        server.stop()
        sink = RedisSink(server.url, "usage")
        with pytest.raises(OSError, match="does not take usage records"):
            sink.deliver([record("1")])
        server.start()
        sink.deliver([record("1")])
        server.stop()
        with pytest.raises(OSError, match="does not take usage records"):
            sink.deliver([record("2")])
        server.start()
        sink.deliver([record("2")])
        client = redis.Redis.from_url(server.url)
        ids = [decode(fields[b"record"]).record_id for _, fields in client.xrange("usage")]
        client.close()
        sink.close()
    assert ids == ["2"], "the server kept nothing over its outage"


def test_what_is_no_stream_is_an_outage(redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    name = f"test:{uuid.uuid4().hex}"
    client = redis.Redis.from_url(redis_url)
    client.set(name, "a string")
    sink = RedisSink(redis_url, name)
    with pytest.raises(OSError, match="ResponseError"):
        sink.deliver([record("1")])
    client.delete(name)
    client.close()
    sink.close()


def test_a_file_goes_on_in_a_new_one_when_it_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "usage.ndjson"
    sink = FileSink(path)
    sink.deliver([record("1"), record("2")])
    path.rename(path.with_suffix(".1"))
    sink.deliver([record("3")])
    sink.close()
    assert [decode(line).record_id for line in path.with_suffix(".1").read_bytes().split(b"\n")[:-1]] == ["1", "2"]
    assert [decode(line).record_id for line in path.read_bytes().split(b"\n")[:-1]] == ["3"]
    assert path.stat().st_mode & 0o007 == 0, "not for everybody"


def test_a_torn_line_of_a_file_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "usage.ndjson"
    path.write_bytes(b'{"event":"llm.usage.rec')
    sink = FileSink(path)
    sink.deliver([record("1")])
    sink.deliver([record("2")])
    torn, *lines = path.read_bytes().split(b"\n")[:-1]
    assert torn == b'{"event":"llm.usage.rec'
    assert [decode(line).record_id for line in lines] == ["1", "2"]


def test_a_file_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        FileSink(tmp_path).deliver([record("1")])


def test_a_ledger_is_checked_at_once_and_opened_when_it_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sqlite:///PATH"):
        LedgerSink("mysql://user:secret@host/db")
    sink = LedgerSink("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(OSError, match="cannot be opened"):
        sink.deliver([record("1")])
    sink.close()
    sqlite = LedgerSink(f"sqlite:///{tmp_path}/usage.db")
    assert list(tmp_path.iterdir()) == []
    sqlite.deliver([record("1")])
    assert (tmp_path / "usage.db").exists()
    sqlite.close()
