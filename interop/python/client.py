"""Calls a Parley server with grpcio and code that protoc generated, and prints the results.

The output is one JSON object. The environment has the server's address and two tokens:
PARLEY_TOKEN has every capability, PARLEY_WEAK_TOKEN lacks admin. PARLEY_NAME is the name of
the channel, the topic and the group, which no other client uses.
"""

import json
import os
import queue
import time

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from parley.v1 import admin_pb2_grpc, admin_queue_pb2, queue_pb2, queue_pb2_grpc
from parley.v1 import (
    channel_pb2,
    error_pb2,
    message_pb2,
    message_pb2_grpc,
    platform_pb2,
    presence_pb2,
    presence_pb2_grpc,
    server_pb2,
    server_pb2_grpc,
    subscription_pb2,
)

NAME = os.environ["PARLEY_NAME"]
LIMIT = 30  # time limit of a call or a stream in seconds


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


TOKEN = bearer(os.environ["PARLEY_TOKEN"])
WEAK = bearer(os.environ["PARLEY_WEAK_TOKEN"])


def failure(call):
    """Makes a call that must fail, and returns its code and its ErrorDetail."""
    try:
        call()
    except grpc.RpcError as error:
        status = rpc_status.from_call(error)
        for packed in status.details:
            detail = error_pb2.ErrorDetail()
            if packed.Unpack(detail):
                return {"code": status.code, "reason": detail.reason, "field": detail.field}
        return {"code": status.code}
    raise AssertionError("the call did not fail")


def messages(channel):
    """Makes the calls of MessageService, and returns their part of the report."""
    stub = message_pb2_grpc.MessageServiceStub(channel)

    def send():
        request = message_pb2.SendMessageRequest(channel_id=NAME, content="hello", client_msg_id="m-1")
        return stub.SendMessage(request, metadata=TOKEN, timeout=LIMIT)

    first, second = send(), send()
    listed = stub.ListMessages(message_pb2.ListMessagesRequest(channel_id=NAME), metadata=TOKEN, timeout=LIMIT)

    events, info = [], None
    position = subscription_pb2.ChannelPosition(channel_id=NAME, after_seq=0)
    stream = stub.Subscribe(subscription_pb2.SubscribeRequest(channels=[position]), metadata=TOKEN, timeout=LIMIT)
    for frame in stream:
        kind = frame.WhichOneof("frame")
        if info is None:
            assert kind == "info", f"the first frame is {kind}"
            info = frame.info
        for event in frame.events.events:
            event_kind = event.WhichOneof("event")
            seen = {"kind": event_kind, "seq": event.seq, "from_seq": event.from_seq}
            if event_kind == "state":
                seen["head_seq"] = event.state.head_seq
            elif event_kind == "sent":
                seen["content"] = event.sent.content
            events.append(seen)
        if events and events[-1]["kind"] == "sent":
            break
    stream.cancel()

    edit = message_pb2.EditMessageRequest(channel_id=NAME, msg_id=first.msg_id, content="hello again")
    edited = stub.EditMessage(edit, metadata=TOKEN, timeout=LIMIT)
    refused = message_pb2.SendMessageRequest(channel_id=NAME, content="")
    return {
        "sent": {"seq": first.seq, "duplicate": first.duplicate},
        "repeated": {"seq": second.seq, "duplicate": second.duplicate},
        "listed": [message.content for message in listed.messages],
        "info": {"stream_id": bool(info.stream_id), "heartbeat": info.heartbeat_interval.ToMilliseconds() > 0},
        "events": events,
        "edited": {
            "content": edited.message.content,
            "edited": edited.message.status == channel_pb2.MESSAGE_STATUS_EDITED,
            "changed_seq": edited.message.changed_seq,
        },
        "refused": failure(lambda: stub.SendMessage(refused, metadata=TOKEN, timeout=LIMIT)),
    }


def presence(channel):
    """Reads the presence of a user who was never online, and the first frame of Connect."""
    stub = presence_pb2_grpc.PresenceServiceStub(channel)
    request = presence_pb2.GetPresenceRequest(user_ids=["nobody"])
    (state,) = stub.GetPresence(request, metadata=TOKEN, timeout=LIMIT).presence
    connect = presence_pb2.ConnectRequest(platform=platform_pb2.PLATFORM_LINUX, device_id=NAME, watch=["nobody"])
    stream = stub.Connect(connect, metadata=TOKEN, timeout=LIMIT)
    frame = next(stream)
    stream.cancel()
    assert frame.HasField("info"), frame
    return {
        "user": state.user_id,
        "platforms": len(state.platforms),
        "stream_id": bool(frame.info.stream.stream_id),
        "login": bool(frame.info.presence.login_token),
        "watched": [user.user_id for user in frame.info.presence.presence.users],
    }


def produce(stub, payload):
    request = queue_pb2.ProduceRequest(topic=NAME, messages=[queue_pb2.QueueMessage(payload=payload)])
    result = stub.Produce(request, metadata=TOKEN, timeout=LIMIT).results[0]
    assert result.HasField("produced"), result


def acknowledge(stub, session, delivery):
    """Acknowledges a delivery of a session with a unary call."""
    ack = stub.Ack(queue_pb2.AckRequest(session_id=session, tokens=[delivery.token]), metadata=TOKEN, timeout=LIMIT)
    return {
        "payload": delivery.payload.decode(),
        "attempt": delivery.attempt,
        "acked": not ack.results[0].HasField("error"),
    }


def consume(stub):
    """Produces a job, consumes it, acknowledges it with a unary call, and leaves."""
    produce(stub, b"one")
    request = queue_pb2.ConsumeRequest(topics=[NAME], group=NAME, consumer="python", concurrency=10)
    session, seen = "", {}
    for frame in stub.Consume(request, metadata=TOKEN, timeout=LIMIT):
        if frame.HasField("started"):
            session = frame.started.session_id
        for delivery in frame.deliveries.deliveries:
            seen = acknowledge(stub, session, delivery)
            stub.Leave(queue_pb2.LeaveRequest(session_id=session), metadata=TOKEN, timeout=LIMIT)
    return seen


def receive(stub):
    """Produces a job, receives it without a stream, and acknowledges it."""
    produce(stub, b"three")
    request = queue_pb2.ReceiveRequest(topic=NAME, group=NAME, wait=Duration(seconds=20))
    answer = stub.Receive(request, metadata=TOKEN, timeout=LIMIT)
    (delivery,) = answer.deliveries
    return acknowledge(stub, answer.session_id, delivery)


def consume_both_ways(stub):
    """Produces a job, consumes and acknowledges it on one bidirectional stream, and leaves."""
    produce(stub, b"two")
    requests = queue.SimpleQueue()
    start = queue_pb2.ConsumeRequest(
        topics=[NAME], group=NAME, consumer="python", concurrency=10, ack_timeout=Duration(seconds=30)
    )
    requests.put(queue_pb2.StreamingConsumeRequest(start=start))
    seen = {}
    for frame in stub.StreamingConsume(iter(requests.get, None), metadata=TOKEN, timeout=LIMIT):
        for delivery in frame.consume.deliveries.deliveries:
            seen |= {"payload": delivery.payload.decode(), "attempt": delivery.attempt}
            ack = queue_pb2.AckRequest(tokens=[delivery.token])
            requests.put(queue_pb2.StreamingConsumeRequest(request_id=7, ack=ack))
        if frame.HasField("results") and frame.results.request_id == 7:
            seen["acked"] = not frame.results.HasField("error") and not frame.results.results[0].HasField("error")
            requests.put(queue_pb2.StreamingConsumeRequest(leave=queue_pb2.LeaveRequest()))
    requests.put(None)
    return seen


def acked(stub, want):
    """Waits until the group has acknowledged want messages, up to LIMIT, and returns the number."""
    deadline = time.monotonic() + LIMIT
    while True:
        request = admin_queue_pb2.GetTopicStatsRequest(topic=NAME)
        total = stub.GetTopicStats(request, metadata=TOKEN, timeout=LIMIT).total
        if total.groups[0].acked == want or time.monotonic() > deadline:
            return total.groups[0].acked
        time.sleep(0.1)


def main():
    with grpc.insecure_channel(os.environ["PARLEY_ADDR"]) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=LIMIT)
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = next(reflection.ServerReflectionInfo(iter([ask]), timeout=LIMIT))

        admin = admin_pb2_grpc.AdminServiceStub(channel)
        about = server_pb2_grpc.ServerServiceStub(channel)
        info = about.GetServerInfo(server_pb2.GetServerInfoRequest(), metadata=WEAK, timeout=LIMIT)
        topic = admin_queue_pb2.Topic(name=NAME, partitions=1)
        create = admin_queue_pb2.CreateTopicRequest(topic=topic)
        denied = failure(lambda: admin.CreateTopic(create, metadata=WEAK, timeout=LIMIT))
        created = admin.CreateTopic(create, metadata=TOKEN, timeout=LIMIT)
        group = admin_queue_pb2.CreateGroupRequest(topic=NAME, group=admin_queue_pb2.Group(name=NAME))
        admin.CreateGroup(group, metadata=TOKEN, timeout=LIMIT)

        queues = queue_pb2_grpc.QueueServiceStub(channel)
        report = {
            "health": health_pb2.HealthCheckResponse.ServingStatus.Name(health.status),
            "services": sorted(service.name for service in answer.list_services_response.service),
            "server": {
                "version": bool(info.version),
                "max_content_bytes": info.limits.max_content_bytes,
                "queues": server_pb2.SERVER_FEATURE_QUEUES in info.features,
            },
            "denied": denied,
            "partitions": created.topic.partitions,
            **messages(channel),
            "presence": presence(channel),
            "job": consume(queues),
            "bidi_job": consume_both_ways(queues),
            "received": receive(queues),
            "acked": acked(admin, 3),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
