package dev.parley.interop;

import com.google.gson.Gson;
import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.protobuf.InvalidProtocolBufferException;
import dev.parley.v1.AckRequest;
import dev.parley.v1.CreateGroupRequest;
import dev.parley.v1.Delivery;
import dev.parley.v1.GetTopicStatsRequest;
import dev.parley.v1.Group;
import dev.parley.v1.LeaveRequest;
import dev.parley.v1.AdminServiceGrpc;
import dev.parley.v1.QueueServiceGrpc;
import dev.parley.v1.ReceiveRequest;
import dev.parley.v1.StreamingConsumeRequest;
import dev.parley.v1.StreamingConsumeResponse;
import dev.parley.v1.ChannelEvent;
import dev.parley.v1.ChannelMessage;
import dev.parley.v1.ConnectRequest;
import dev.parley.v1.EditMessageRequest;
import dev.parley.v1.ErrorDetail;
import dev.parley.v1.GetPresenceRequest;
import dev.parley.v1.GetServerInfoRequest;
import dev.parley.v1.ListMessagesRequest;
import dev.parley.v1.MessageServiceGrpc;
import dev.parley.v1.MessageStatus;
import dev.parley.v1.Platform;
import dev.parley.v1.PresenceServiceGrpc;
import dev.parley.v1.ServerFeature;
import dev.parley.v1.ServerServiceGrpc;
import dev.parley.v1.StreamInfo;
import dev.parley.v1.SubscribeResponse;
import dev.parley.v1.UserPresence;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.reflection.v1.ServerReflectionGrpc;
import io.grpc.reflection.v1.ServerReflectionRequest;
import io.grpc.reflection.v1.ServerReflectionResponse;
import io.grpc.reflection.v1.ServiceResponse;
import io.grpc.stub.AbstractStub;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Calls a Parley server with grpc-java and code that protoc generated, and prints the results as one
 * JSON object.
 *
 * <p>The environment has the server's address and two tokens: PARLEY_TOKEN has every capability,
 * PARLEY_WEAK_TOKEN lacks admin. PARLEY_NAME is the name of the channel, the topic and the
 * group, which no other client uses.
 */
public final class Client {
    private static final String NAME = System.getenv("PARLEY_NAME");
    private static final long LIMIT = 30; // time limit of a call or a stream in seconds

    private final Channel open;
    private final Channel strong;
    private final Channel weak;

    private Client(Channel channel) {
        open = channel;
        strong = bearer(channel, System.getenv("PARLEY_TOKEN"));
        weak = bearer(channel, System.getenv("PARLEY_WEAK_TOKEN"));
    }

    private static Channel bearer(Channel channel, String token) {
        Metadata headers = new Metadata();
        headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
        return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
    }

    /** Returns the stub for one call, with a deadline of LIMIT from now. */
    private static <S extends AbstractStub<S>> S call(S stub) {
        return stub.withDeadlineAfter(LIMIT, TimeUnit.SECONDS);
    }

    public static void main(String[] args) throws Exception {
        var channel = OkHttpChannelBuilder.forTarget(System.getenv("PARLEY_ADDR"), InsecureChannelCredentials.create()).build();
        try {
            System.out.println(new Gson().toJson(new Client(channel).report()));
        } finally {
            channel.shutdownNow().awaitTermination(LIMIT, TimeUnit.SECONDS);
        }
    }

    private Map<String, Object> report() throws Exception {
        var admin = AdminServiceGrpc.newBlockingStub(strong);
        var stranger = AdminServiceGrpc.newBlockingStub(weak);
        var health = call(HealthGrpc.newBlockingStub(open)).check(HealthCheckRequest.getDefaultInstance());
        var info = call(ServerServiceGrpc.newBlockingStub(weak)).getServerInfo(GetServerInfoRequest.getDefaultInstance());
        var create = Requests.createTopic(NAME);
        var denied = failure(() -> call(stranger).createTopic(create));
        var created = call(admin).createTopic(create);
        call(admin).createGroup(CreateGroupRequest.newBuilder().setTopic(NAME).setGroup(Group.newBuilder().setName(NAME)).build());

        Map<String, Object> report = new LinkedHashMap<>();
        report.put("health", health.getStatus().name());
        report.put("services", services());
        report.put("server", Map.of(
                "version", !info.getVersion().isEmpty(),
                "max_content_bytes", info.getLimits().getMaxContentBytes(),
                "queues", info.getFeaturesList().contains(ServerFeature.SERVER_FEATURE_QUEUES)));
        report.put("denied", denied);
        report.put("partitions", created.getTopic().getPartitions());
        messages(report);
        presence(report);
        report.put("job", consume());
        report.put("bidi_job", consumeBothWays());
        report.put("received", receive());
        report.put("acked", acked(admin, 3));
        return report;
    }

    /** Returns the names of the services, by reflection. */
    private List<String> services() throws Exception {
        var answer = new CompletableFuture<ServerReflectionResponse>();
        var requests = call(ServerReflectionGrpc.newStub(open)).serverReflectionInfo(new StreamObserver<>() {
            @Override
            public void onNext(ServerReflectionResponse response) {
                answer.complete(response);
            }

            @Override
            public void onError(Throwable error) {
                answer.completeExceptionally(error);
            }

            @Override
            public void onCompleted() {}
        });
        requests.onNext(ServerReflectionRequest.newBuilder().setListServices("").build());
        requests.onCompleted();
        return answer.get(LIMIT, TimeUnit.SECONDS).getListServicesResponse().getServiceList().stream()
                .map(ServiceResponse::getName).sorted().toList();
    }

    /** Makes a call that must fail, and returns its code and its ErrorDetail. */
    private static Map<String, Object> failure(Runnable call) throws InvalidProtocolBufferException {
        try {
            call.run();
        } catch (StatusRuntimeException error) {
            var status = StatusProto.fromThrowable(error);
            for (Any packed : status.getDetailsList()) {
                if (packed.is(ErrorDetail.class)) {
                    var detail = packed.unpack(ErrorDetail.class);
                    return Map.of("code", status.getCode(), "reason", detail.getReasonValue(), "field", detail.getField());
                }
            }
            return Map.of("code", status.getCode());
        }
        throw new IllegalStateException("the call did not fail");
    }

    /** Makes the calls of MessageService, and adds their results to the report. */
    private void messages(Map<String, Object> report) throws InvalidProtocolBufferException {
        var stub = MessageServiceGrpc.newBlockingStub(strong);
        var first = call(stub).sendMessage(Requests.send(NAME, "hello", "m-1"));
        var second = call(stub).sendMessage(Requests.send(NAME, "hello", "m-1"));
        var listed = call(stub).listMessages(ListMessagesRequest.newBuilder().setChannelId(NAME).build());
        report.put("sent", Map.of("seq", first.getSeq(), "duplicate", first.getDuplicate()));
        report.put("repeated", Map.of("seq", second.getSeq(), "duplicate", second.getDuplicate()));
        report.put("listed", listed.getMessagesList().stream().map(ChannelMessage::getContent).toList());

        var context = Context.current().withCancellation();
        context.run(() -> subscribe(report, call(stub).subscribe(Requests.subscribe(NAME))));
        context.cancel(null);

        var edit = EditMessageRequest.newBuilder().setChannelId(NAME).setMsgId(first.getMsgId()).setContent("hello again");
        var edited = call(stub).editMessage(edit.build());
        report.put("edited", Map.of(
                "content", edited.getMessage().getContent(),
                "edited", edited.getMessage().getStatus() == MessageStatus.MESSAGE_STATUS_EDITED,
                "changed_seq", edited.getMessage().getChangedSeq()));
        report.put("refused", failure(() -> call(stub).sendMessage(Requests.send(NAME, "", ""))));
    }

    private static void subscribe(Map<String, Object> report, Iterator<SubscribeResponse> frames) {
        StreamInfo info = null;
        List<Map<String, Object>> events = new ArrayList<>();
        for (boolean sent = false; !sent && frames.hasNext(); ) {
            var frame = frames.next();
            if (info == null) {
                if (!frame.hasInfo()) {
                    throw new IllegalStateException("the first frame is " + frame.getFrameCase());
                }
                info = frame.getInfo();
                report.put("info", Map.of(
                        "stream_id", !info.getStreamId().isEmpty(),
                        "heartbeat", info.hasHeartbeatInterval() && info.getHeartbeatInterval().getSeconds() > 0));
            }
            for (ChannelEvent event : frame.getEvents().getEventsList()) {
                Map<String, Object> seen = new LinkedHashMap<>();
                seen.put("kind", event.getEventCase().name().toLowerCase());
                seen.put("seq", event.getSeq());
                seen.put("from_seq", event.getFromSeq());
                if (event.hasState()) {
                    seen.put("head_seq", event.getState().getHeadSeq());
                } else if (event.hasSent()) {
                    seen.put("content", event.getSent().getContent());
                    sent = true;
                }
                events.add(seen);
            }
        }
        report.put("events", events);
    }

    /** Reads the presence of a user who was never online, and the first frame of Connect. */
    private void presence(Map<String, Object> report) {
        var stub = PresenceServiceGrpc.newBlockingStub(strong);
        var state = call(stub).getPresence(GetPresenceRequest.newBuilder().addUserIds("nobody").build()).getPresence(0);
        var connect = ConnectRequest.newBuilder().setPlatform(Platform.PLATFORM_LINUX).setDeviceId(NAME).addWatch("nobody");
        var context = Context.current().withCancellation();
        context.run(() -> {
            var frame = call(stub).connect(connect.build()).next();
            if (!frame.hasInfo()) {
                throw new IllegalStateException("the first frame is " + frame.getFrameCase());
            }
            var info = frame.getInfo().getPresence();
            report.put("presence", Map.of(
                    "user", state.getUserId(),
                    "platforms", state.getPlatformsCount(),
                    "stream_id", !frame.getInfo().getStream().getStreamId().isEmpty(),
                    "login", !info.getLoginToken().isEmpty(),
                    "watched", info.getPresence().getUsersList().stream().map(UserPresence::getUserId).toList()));
        });
        context.cancel(null);
    }

    private static Map<String, Object> job(Delivery delivery) {
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("payload", delivery.getPayload().toStringUtf8());
        seen.put("attempt", delivery.getAttempt());
        return seen;
    }

    private void produce(String payload) {
        var response = call(QueueServiceGrpc.newBlockingStub(strong)).produce(Requests.produce(NAME, payload));
        if (!response.getResults(0).hasProduced()) {
            throw new IllegalStateException("produce: " + response.getResults(0).getError());
        }
    }

    /** Acknowledges a delivery of a session with a unary call. */
    private Map<String, Object> acknowledge(String session, Delivery delivery) {
        var ack = AckRequest.newBuilder().setSessionId(session).addTokens(delivery.getToken());
        var seen = job(delivery);
        seen.put("acked", !call(QueueServiceGrpc.newBlockingStub(strong)).ack(ack.build()).getResults(0).hasError());
        return seen;
    }

    /** Produces a job, consumes it, acknowledges it with a unary call, and leaves. */
    private Map<String, Object> consume() {
        produce("one");
        var stub = QueueServiceGrpc.newBlockingStub(strong);
        Map<String, Object> seen = null;
        String session = "";
        for (var frames = call(stub).consume(Requests.consume(NAME)); frames.hasNext(); ) {
            var frame = frames.next();
            if (frame.hasStarted()) {
                session = frame.getStarted().getSessionId();
            }
            for (Delivery delivery : frame.getDeliveries().getDeliveriesList()) {
                seen = acknowledge(session, delivery);
                call(stub).leave(LeaveRequest.newBuilder().setSessionId(session).build());
            }
        }
        return seen;
    }

    /** Produces a job, receives it without a stream, and acknowledges it. */
    private Map<String, Object> receive() {
        produce("three");
        var wait = Duration.newBuilder().setSeconds(20);
        var request = ReceiveRequest.newBuilder().setTopic(NAME).setGroup(NAME).setWait(wait).build();
        var answer = call(QueueServiceGrpc.newBlockingStub(strong)).receive(request);
        return acknowledge(answer.getSessionId(), answer.getDeliveries(0));
    }

    /** Produces a job, consumes and acknowledges it on one bidirectional stream, and leaves. */
    private Map<String, Object> consumeBothWays() throws Exception {
        produce("two");
        var requests = new AtomicReference<StreamObserver<StreamingConsumeRequest>>();
        var ended = new CompletableFuture<Map<String, Object>>();
        var both = new StreamObserver<StreamingConsumeResponse>() {
            private Map<String, Object> seen;

            @Override
            public void onNext(StreamingConsumeResponse frame) {
                for (Delivery delivery : frame.getConsume().getDeliveries().getDeliveriesList()) {
                    seen = job(delivery);
                    var ack = AckRequest.newBuilder().addTokens(delivery.getToken());
                    requests.get().onNext(StreamingConsumeRequest.newBuilder().setRequestId(7).setAck(ack).build());
                }
                if (frame.hasResults() && frame.getResults().getRequestId() == 7) {
                    seen.put("acked", !frame.getResults().hasError() && !frame.getResults().getResults(0).hasError());
                    var leave = LeaveRequest.getDefaultInstance();
                    requests.get().onNext(StreamingConsumeRequest.newBuilder().setLeave(leave).build());
                }
            }

            @Override
            public void onError(Throwable error) {
                ended.completeExceptionally(error);
            }

            @Override
            public void onCompleted() {
                ended.complete(seen);
            }
        };
        requests.set(call(QueueServiceGrpc.newStub(strong)).streamingConsume(both));
        requests.get().onNext(StreamingConsumeRequest.newBuilder().setStart(Requests.consume(NAME)).build());
        return ended.get(LIMIT, TimeUnit.SECONDS);
    }

    /** Waits until the group has acknowledged want messages, up to LIMIT, and returns the number. */
    private static long acked(AdminServiceGrpc.AdminServiceBlockingStub admin, long want) throws InterruptedException {
        for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT); ; Thread.sleep(100)) {
            var stats = call(admin).getTopicStats(GetTopicStatsRequest.newBuilder().setTopic(NAME).build());
            long seen = stats.getTotal().getGroups(0).getAcked();
            if (seen == want || System.nanoTime() > deadline) {
                return seen;
            }
        }
    }
}
