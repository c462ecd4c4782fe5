"""gRPC over real sockets: grpcio as the caller, with the stubs that ship, and with nothing but reflection."""

from __future__ import annotations

import datetime
import filecmp
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from headrace.v1 import gateway_pb2 as pb
from headrace.v1.gateway_pb2_grpc import LlmGatewayStub
from headrace.v1.generate import GENERATED, SOURCE, generate
from tests.gateway.test_life import DELTA, DELTAS, eventually, flood_config
from tests.gateway.test_life import flood as flood_fixture
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway

flood = flood_fixture  # pytest finds it by this name
USER = [pb.Message(role="user", content="What is a headrace?")]
GRPC = "server: {grpc: {port: 0}}\n"


def stub_on(channel: grpc.Channel) -> Any:
    """The shipped stub, which has no types."""
    return LlmGatewayStub(channel)  # type: ignore[no-untyped-call]  # generated


def request(model: str, **more: Any) -> pb.ChatRequest:
    return pb.ChatRequest(model=model, messages=USER, **more)


@pytest.fixture(scope="module")
def rpc_gateway(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    with live_gateway(servers, gateway_config(replay.base_url, GRPC)) as live:
        yield live


def address(gateway: LiveGateway) -> str:
    listener = gateway._server.grpc  # type: ignore[attr-defined]  # it is a GatewayServer
    return f"127.0.0.1:{listener.port}"


@pytest.fixture(scope="module")
def channel(rpc_gateway: LiveGateway) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address(rpc_gateway)) as opened:
        yield opened


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> Any:
    return stub_on(channel)


def refused(call: Callable[[], Any]) -> Any:
    """The error of a call that is refused before its first event."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def details(error: Any) -> pb.Error:
    """The Error in a status's details."""
    trailing = dict(error.trailing_metadata())
    status = pb.Status.FromString(trailing["grpc-status-details-bin"])
    found = pb.Error()
    assert status.details[0].Unpack(found)
    return found


def text_of(events: list[Any]) -> str:
    return "".join(event.delta.content for event in events)


def test_the_generated_modules_are_current(tmp_path: Path) -> None:
    generate(tmp_path)
    for name in GENERATED:
        assert filecmp.cmp(tmp_path / "headrace" / "v1" / name, SOURCE / "headrace" / "v1" / name, shallow=False), name


@pytest.mark.parametrize("provider", ["as-openai", "as-anthropic", "as-gateway", "as-llm-stream"])
def test_text(stub: Any, provider: str) -> None:
    events = list(stub.Chat(request(f"{provider}/text"), timeout=20))
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[0].WhichOneof("event") == "start"
    assert events[0].start.provider in (provider, "replay")  # a gateway behind says who answered there
    assert text_of(events)
    done = events[-1].done
    assert done.finish_reason == "end_turn"
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0
    assert done.routing.selected_provider in (provider, "replay")
    once = stub.ChatOnce(request(f"{provider}/text"), timeout=20)
    assert once.choices[0].message.content == text_of(events)
    assert once.choices[0].finish_reason == "end_turn"
    assert once.usage.completion_tokens == done.usage.completion_tokens


def test_tool_calls_and_reasoning(stub: Any) -> None:
    events = list(stub.Chat(request("as-openai/parallel-tools"), timeout=20))
    calls = [event.tool_call for event in events if event.HasField("tool_call")]
    complete = [call for call in calls if call.complete]
    assert len(complete) > 1
    for call in complete:
        pieces = "".join(piece.arguments_delta for piece in calls if piece.id == call.id)
        assert json.loads(call.arguments) == json.loads(pieces)
    events = list(stub.Chat(request("as-anthropic/reasoning"), timeout=20))
    assert "".join(event.reasoning.content for event in events)
    signed = [event.reasoning for event in events if "vendor:anthropic" in event.reasoning.extensions.fields]
    assert signed, "signatures travel in extensions"
    once = stub.ChatOnce(request("as-openai/parallel-tools"), timeout=20)
    answer = once.choices[0].message
    assert [call.name for call in answer.tool_calls] == [call.name for call in complete]
    turn = pb.ChatRequest(model="as-anthropic/text", messages=[*USER, answer])
    for call in answer.tool_calls:
        turn.messages.add(role="tool", tool_call_id=call.id, content="42")
    assert stub.ChatOnce(turn, timeout=20).choices[0].message.content


def test_llm_stream_events(stub: Any) -> None:
    body = json.dumps(
        {
            "version": "1.0",
            "stream": True,
            "model": "as-openai/tool",
            "messages": [{"role": "user", "content": "What?"}],
        }
    )
    asked = (request("as-openai/tool", format=pb.FORMAT_LLM_STREAM), pb.ChatRequest(llm_stream_json=body))
    for events in (list(stub.Chat(one, timeout=20)) for one in asked):
        assert [event.seq for event in events] == list(range(len(events)))
        kinds = [event.llm_stream.WhichOneof("event") for event in events]
        assert kinds[0] == "stream_start"
        assert kinds[-1] == "stream_end"
        assert "tool_call" in kinds
        stop = next(event.llm_stream.content_stop for event in events if event.llm_stream.HasField("content_stop"))
        assert stop.stop_reason
        assert all(event.llm_stream.v == "1.0" for event in events)
    error = refused(lambda: stub.ChatOnce(request("as-openai/text", format=pb.FORMAT_LLM_STREAM), timeout=20))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_all_of_a_request_reaches_the_provider(stub: Any, replay: ReplayServer) -> None:
    asked = request("as-openai/text", max_tokens=7, temperature=0.0, stop_sequences=["x"], seed=3)
    asked.messages.add(
        role="user",
        parts=[pb.Part(image=pb.MediaPart(media_type="image/png", data=b"png")), pb.Part(text=pb.TextPart(text="t"))],
    )
    tool = asked.tools.add(name="look", description="Looks")
    tool.parameters.update({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})
    asked.tool_choice.type, asked.tool_choice.name = "tool", "look"
    asked.more.update({"presence_penalty": 0.5})
    stub.ChatOnce(asked, timeout=20)
    body: Any = replay.requests[-1].body
    assert body["temperature"] == 0
    assert body["stop"] == ["x"]
    assert body["seed"] == 3
    assert body["presence_penalty"] == 0.5
    minimum = body["tools"][0]["function"]["parameters"]["properties"]["n"]["minimum"]
    assert isinstance(minimum, int), "whole numbers stay whole"
    assert body["messages"][-1]["content"][0]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert body["tool_choice"]["function"]["name"] == "look"


def test_an_error_before_the_first_event_is_a_status_with_details(stub: Any) -> None:
    call = stub.Chat(request("as-openai/text?status=429&retry_after=7"), timeout=20)
    error = refused(lambda: next(call))
    assert dict(error.trailing_metadata())["retry-after"] == "7"
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    found = details(error)
    assert found.provider == "as-openai"
    assert found.message == error.details()


def test_an_error_after_the_first_event_is_an_event_and_a_status(stub: Any) -> None:
    events: list[Any] = []
    call = stub.Chat(request("as-openai/error"), timeout=20)
    with pytest.raises(grpc.RpcError):
        events.extend(iter(call))  # what came before the error is there
    assert events[-1].error.code
    assert [event.seq for event in events] == list(range(len(events)))
    assert call.code() is not grpc.StatusCode.OK
    assert details(call).code == events[-1].error.code


@pytest.mark.parametrize(
    ("asked", "code", "param"),
    [
        (pb.ChatRequest(model="nobody/none", messages=USER), grpc.StatusCode.NOT_FOUND, "model"),
        (pb.ChatRequest(model="as-openai/text"), grpc.StatusCode.INVALID_ARGUMENT, "messages"),
        (pb.ChatRequest(gateway_json="{"), grpc.StatusCode.INVALID_ARGUMENT, "gateway_json"),
        (pb.ChatRequest(gateway_json="{}", model="a"), grpc.StatusCode.INVALID_ARGUMENT, "model"),
        (
            pb.ChatRequest(model="as-openai/text", messages=[pb.Message(role="king", content="x")]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "messages[0].role",
        ),
    ],
)
def test_bad_requests(stub: Any, asked: pb.ChatRequest, code: grpc.StatusCode, param: str) -> None:
    for call in (lambda: stub.ChatOnce(asked, timeout=20), lambda: list(stub.Chat(asked, timeout=20))):
        error = refused(call)
        assert error.code() is code, error.details()
        assert details(error).param == param


def test_bytes_that_are_no_message(channel: grpc.Channel) -> None:
    method: Any = channel.unary_unary("/headrace.v1.LlmGateway/ChatOnce")
    error = refused(lambda: method(b"\xff\xff\xff", timeout=20))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "headrace.v1.ChatRequest" in error.details()


def test_a_message_beyond_the_limit(servers: LoopThread, replay: ReplayServer) -> None:
    config = gateway_config(replay.base_url, GRPC + "limits: {body_bytes: 4KiB}\n")
    with live_gateway(servers, config) as live, grpc.insecure_channel(address(live)) as opened:
        small = stub_on(opened)
        asked = pb.ChatRequest(model="as-openai/text", messages=[pb.Message(role="user", content="x" * 9000)])
        error = refused(lambda: small.ChatOnce(asked, timeout=20))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_metadata_goes_both_ways(stub: Any) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    metadata = (("x-request-id", "grpc-meta"), ("traceparent", trace))
    call = stub.Chat(request("as-openai/text"), metadata=metadata, timeout=20)
    initial = dict(call.initial_metadata())
    assert initial["x-request-id"] == "grpc-meta"
    assert initial["traceparent"].split("-")[1] == trace.split("-")[1]
    assert next(iter(call)).start.request_id == "grpc-meta"
    call.cancel()
    error = refused(lambda: stub.ChatOnce(request("no/no"), metadata=metadata, timeout=20))
    assert dict(error.trailing_metadata())["x-request-id"] == "grpc-meta"


def test_cancelling_the_call_ends_the_provider(stub: Any, rpc_gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted = replay.aborted
    metadata = (("x-request-id", "grpc-gone"),)
    call = stub.Chat(request("as-openai/text?silence=3"), metadata=metadata, timeout=60)
    assert next(call).HasField("start")
    call.cancel()
    assert eventually(lambda: replay.aborted == aborted + 1)
    assert eventually(lambda: not rpc_gateway.application.live)
    assert [record.outcome for record in rpc_gateway.records.of("grpc-gone")] == ["cancelled"]


def test_a_deadline_ends_the_provider(stub: Any, replay: ReplayServer, rpc_gateway: LiveGateway) -> None:
    aborted = replay.aborted
    error = refused(lambda: list(stub.Chat(request("as-openai/text?silence=3"), timeout=0.5)))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert eventually(lambda: replay.aborted == aborted + 1)
    assert eventually(lambda: not rpc_gateway.application.live)


def test_cancel_by_request_id(stub: Any, replay: ReplayServer) -> None:
    call = stub.Chat(request("as-openai/text?silence=3"), metadata=(("x-request-id", "by-id"),), timeout=60)
    assert next(call).HasField("start")
    assert stub.Cancel(pb.CancelRequest(request_id="by-id"), timeout=20).cancelled
    with pytest.raises(grpc.RpcError):
        list(call)
    assert call.code() is grpc.StatusCode.CANCELLED
    assert details(call).code == "cancelled"
    assert eventually(lambda: not stub.Cancel(pb.CancelRequest(request_id="by-id"), timeout=20).cancelled)
    assert refused(lambda: stub.Cancel(pb.CancelRequest(), timeout=20)).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_models(stub: Any) -> None:
    listed = stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert all(model.id for model in listed)


def test_keys(servers: LoopThread, replay: ReplayServer, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    _, secret = KeyFile(file).create("one", now=datetime.datetime.now(datetime.UTC))
    config = gateway_config(replay.base_url, GRPC + f"keys_file: {file}\n")
    with live_gateway(servers, config) as live, grpc.insecure_channel(address(live)) as opened:
        guarded = stub_on(opened)
        for bad in ((), (("authorization", "Bearer wrong"),)):
            for call in (
                lambda bad=bad: guarded.ChatOnce(request("as-openai/text"), metadata=bad, timeout=20),
                lambda bad=bad: list(guarded.Chat(request("as-openai/text"), metadata=bad, timeout=20)),
                lambda bad=bad: guarded.ListModels(pb.ListModelsRequest(), metadata=bad, timeout=20),
                lambda bad=bad: guarded.Cancel(pb.CancelRequest(request_id="a"), metadata=bad, timeout=20),
            ):
                assert refused(call).code() is grpc.StatusCode.UNAUTHENTICATED
        for good in ((("authorization", f"Bearer {secret}"),), (("x-api-key", secret),)):
            assert guarded.ChatOnce(request("as-openai/text"), metadata=good, timeout=20).choices


def test_health_and_reflection(channel: grpc.Channel) -> None:
    """As grpcurl does it: nothing is known of the service but its name."""
    health = health_pb2_grpc.HealthStub(channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service="headrace.v1.LlmGateway"), timeout=20)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)

    def ask(**said: Any) -> Any:
        asked = iter([reflection_pb2.ServerReflectionRequest(**said)])
        return next(reflection.ServerReflectionInfo(asked, timeout=20))

    services = [service.name for service in ask(list_services="").list_services_response.service]
    assert "headrace.v1.LlmGateway" in services
    pool = descriptor_pool.DescriptorPool()
    known: set[str] = set()

    def learn(files: Any) -> None:
        for data in files:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            if file.name in known:
                continue
            known.add(file.name)
            for name in file.dependency:
                learn(ask(file_by_filename=name).file_descriptor_response.file_descriptor_proto)
            pool.Add(file)

    found = ask(file_containing_symbol="headrace.v1.LlmGateway")
    learn(found.file_descriptor_response.file_descriptor_proto)
    method = pool.FindServiceByName("headrace.v1.LlmGateway").FindMethodByName("ChatOnce")
    kind: Any = message_factory.GetMessageClass(method.input_type)
    asked = kind(model="as-openai/text")
    asked.messages.add(role="user", content="What?")
    call: Any = channel.unary_unary("/headrace.v1.LlmGateway/ChatOnce")
    whole = message_factory.GetMessageClass(method.output_type).FromString(call(asked.SerializeToString(), timeout=20))
    assert MessageToDict(whole)["choices"][0]["message"]["content"]


NO_PROBE = [("grpc.http2.bdp_probe", 0)]
"""A caller whose window does not grow while it reads nothing."""


def test_a_slow_reader_pauses_the_provider_and_loses_nothing(servers: LoopThread, flood: ReplayServer) -> None:
    config = msgspec.structs.replace(flood_config(flood, "60s"), server=gateway_config(flood.base_url, GRPC).server)
    with live_gateway(servers, config) as live, grpc.insecure_channel(address(live), options=NO_PROBE) as opened:
        slow = stub_on(opened)
        call = slow.Chat(request("as-openai/flood"), timeout=60)
        assert next(call).HasField("start")
        (driver,) = live.application.live
        assert eventually(lambda: driver.stream._blocked_at is not None)
        assert driver.stream.buffered < 64 * 1024 + 2 * 256 * 1024
        assert flood.active == 1
        assert text_of(list(call)) == DELTA * DELTAS


def test_a_caller_who_never_reads_is_given_up(servers: LoopThread, flood: ReplayServer) -> None:
    config = msgspec.structs.replace(flood_config(flood, "300ms"), server=gateway_config(flood.base_url, GRPC).server)
    with live_gateway(servers, config) as live, grpc.insecure_channel(address(live), options=NO_PROBE) as opened:
        slow = stub_on(opened)
        call = slow.Chat(request("as-openai/flood"), metadata=(("x-request-id", "grpc-slow"),), timeout=60)
        assert next(call).HasField("start")
        assert [record.error for record in live.records.of("grpc-slow")] == ["consumer_too_slow"]
        assert eventually(lambda: not live.application.live)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() is grpc.StatusCode.ABORTED
        assert details(call).code == "consumer_too_slow"


def test_shutdown_ends_streams_with_an_error_event(servers: LoopThread, replay: ReplayServer) -> None:
    config = gateway_config(replay.base_url, GRPC + "")
    seen: list[Any] = []
    with live_gateway(servers, config) as live:
        opened = grpc.insecure_channel(address(live))
        ending = stub_on(opened)
        call = ending.Chat(request("as-openai/text?silence=3"), timeout=60)
        seen.append(next(call))

        def read() -> None:
            with pytest.raises(grpc.RpcError):
                seen.extend(iter(call))

        reader = threading.Thread(target=read)
        reader.start()
    reader.join(20)
    opened.close()
    assert not reader.is_alive()
    assert seen[-1].error.code == "cancelled"
