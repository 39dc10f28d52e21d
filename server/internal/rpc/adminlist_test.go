package rpc

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue"
)

// listed sets up the fake Admin with n topics, n pending deliveries and n dead letters. bytes is
// the approximate size of each topic and each dead letter.
func (b *bundle) listed(n, bytes int) {
	b.admin.topics = func(after string, most int) ([]*queue.Topic, bool, error) {
		from := 0
		if after != "" {
			at, _ := strconv.Atoi(strings.TrimPrefix(after, "t"))
			from = at + 1
		}
		var topics []*queue.Topic
		for i := from; i < min(from+most, n); i++ {
			t := &queue.Topic{Name: fmt.Sprintf("t%04d", i)}
			if bytes > 0 {
				t.Groups = []queue.Group{{Name: strings.Repeat("g", bytes)}}
			}
			topics = append(topics, t)
		}
		return topics, from+len(topics) < n, nil
	}
	b.admin.owners = func(string, string) ([]queue.Owner, error) {
		return []queue.Owner{{Partition: 1, StreamID: "s1", Consumer: "c1", NodeID: "n", Epoch: 1 << 60, Left: time.Second}}, nil
	}
	b.admin.pending = func(_, _ string, byAttempts bool, offset, most int) ([]queue.PendingEntry, int, error) {
		var entries []queue.PendingEntry
		for i := offset; i < min(offset+most, n); i++ {
			e := queue.PendingEntry{MessageID: strconv.Itoa(i), Partition: 1, StreamID: fmt.Sprint("s", i%2), Attempt: 2, Idle: time.Minute}
			if byAttempts {
				e.MessageID = strconv.Itoa(n - i)
			}
			entries = append(entries, e)
		}
		return entries, n, nil
	}
	b.admin.letters = func(_, _, cursor string, most int) ([]queue.DeadLetter, string, error) {
		from := 0
		if cursor != "" {
			from, _ = strconv.Atoi(strings.TrimPrefix(cursor, "0-1-"))
			from++
		}
		var letters []queue.DeadLetter
		for i := from; i < min(from+most, n); i++ {
			letters = append(letters, queue.DeadLetter{ID: fmt.Sprint("0-1-", i), Message: queue.Message{Payload: make([]byte, bytes)}})
		}
		if from+len(letters) >= n || len(letters) == 0 {
			return letters, "", nil
		}
		return letters, letters[len(letters)-1].ID, nil
	}
}

// adminList is one of the list calls of AdminService.
type adminList struct {
	name string
	// page makes the call. It returns the names of the page's items, the token of the next page, and
	// the response's size in bytes.
	page func(c parleyv1connect.AdminServiceClient, topic string, size int32, token string) ([]string, string, int, error)
}

func adminLists(t *testing.T) []adminList {
	t.Helper()
	return []adminList{
		{"topics", func(c parleyv1connect.AdminServiceClient, _ string, size int32, token string) (ids []string, _ string, _ int, _ error) {
			r, err := c.ListTopics(t.Context(), &parleyv1.ListTopicsRequest{PageSize: size, PageToken: token})
			for _, topic := range r.GetTopics() {
				ids = append(ids, topic.GetName())
			}
			return ids, r.GetNextPageToken(), proto.Size(r), err
		}},
		{"pending", func(c parleyv1connect.AdminServiceClient, topic string, size int32, token string) (ids []string, _ string, _ int, _ error) {
			r, err := c.ListPending(t.Context(), &parleyv1.ListPendingRequest{Topic: topic, Group: "g", PageSize: size, PageToken: token})
			for _, p := range r.GetPending() {
				ids = append(ids, p.GetMessageId())
			}
			return ids, r.GetNextPageToken(), proto.Size(r), err
		}},
		{"dead letters", func(c parleyv1connect.AdminServiceClient, topic string, size int32, token string) (ids []string, _ string, _ int, _ error) {
			r, err := c.ListDeadLetters(t.Context(), &parleyv1.ListDeadLettersRequest{Topic: topic, PageSize: size, PageToken: token})
			for _, l := range r.GetDeadLetters() {
				ids = append(ids, l.GetDeadLetterId())
			}
			return ids, r.GetNextPageToken(), proto.Size(r), err
		}},
	}
}

// walk reads a list to its end in pages of the given size, and checks that it returns each of n
// items once.
func (l *adminList) walk(t *testing.T, c parleyv1connect.AdminServiceClient, n int, size int32) {
	t.Helper()
	var all []string
	for token := ""; ; {
		ids, next, length, err := l.page(c, "jobs", size, token)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 || size > 0 && len(ids) > int(size) || length > pageBytes+1024 && len(ids) > 1 {
			t.Fatalf("%s: a page has %d items and %d bytes", l.name, len(ids), length)
		}
		all = append(all, ids...)
		if token = next; token == "" {
			break
		}
	}
	if len(all) != n || len(slices.Compact(slices.Sorted(slices.Values(all)))) != n {
		t.Errorf("%s in pages of %d: %q", l.name, size, all)
	}
}

// With pages of any size a list returns each item once. Only an empty token means the end.
func TestAdminPages(t *testing.T) {
	t.Parallel()
	const n = 130
	b := setup(t, nil)
	b.listed(n, 0)
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		for _, l := range adminLists(t) {
			for _, size := range []int32{0, 50, 129, 130, 1000} {
				l.walk(t, c, n, size)
			}
		}
	})
}

// A page size above the maximum is lowered to it.
func TestAdminPageSizeIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.listed(1003, 0)
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		for _, l := range adminLists(t) {
			for _, size := range []int32{1001, 1e9} {
				if ids, next, _, err := l.page(c, "jobs", size, ""); err != nil || len(ids) != 1000 || next == "" {
					t.Errorf("%s in pages of %d: %d items, %v", l.name, size, len(ids), err)
				}
			}
		}
	})
}

// No page is larger than 1 MiB, unless one item is.
func TestAdminPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{400 << 10, 1100 << 10} {
		b := setup(t, nil)
		const n = 4
		b.listed(n, bytes)
		for _, l := range adminLists(t) {
			l.walk(t, b.adminClient(1, b.mintAs(operator("ada"))), n, 1000)
		}
	}
}

// A page token is valid only for its list, its query and the subject that it was created for.
func TestAdminPageTokens(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.listed(10, 0)
	other := b.mintAs(operator("eve"))
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		lists := adminLists(t)
		tokens := make([]string, len(lists))
		for i, l := range lists {
			var err error
			if _, tokens[i], _, err = l.page(c, "jobs", 3, ""); err != nil || tokens[i] == "" {
				t.Fatal(err)
			}
		}
		const invalid, foreign = `invalid_argument PAGE_TOKEN_INVALID "page_token" 0`, `permission_denied PAGE_TOKEN_FOREIGN "page_token" 0`
		for i, l := range lists {
			token := tokens[i]
			swap := "A"
			if strings.HasSuffix(token, swap) {
				swap = "Q"
			}
			bad := map[string]string{
				"of another list": tokens[(i+1)%len(tokens)], "cut": token[:len(token)-4], "longer": token + "AAAA", "changed": token[:len(token)-1] + swap,
				"none": "0-1-3", "padded": token + "=", "JSON": `{"l":"t0003"}`, "a message list's": base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
			}
			for name, token := range bad {
				if _, _, _, err := l.page(c, "jobs", 3, token); refusedAs(t, err) != invalid {
					t.Errorf("%s with a token that is %s: %v", l.name, name, err)
				}
			}
			if l.name != "topics" {
				if _, _, _, err := l.page(c, "other", 3, token); refusedAs(t, err) != invalid {
					t.Errorf("%s with another topic's token: %v", l.name, err)
				}
			}
			if _, _, _, err := l.page(b.adminClient(1, other), "jobs", 3, token); refusedAs(t, err) != foreign {
				t.Errorf("%s with another's token: %v", l.name, err)
			}
			if _, _, _, err := l.page(c, "jobs", -1, ""); refusedAs(t, err) != `invalid_argument INVALID_FIELD "page_size" 0` {
				t.Errorf("%s in pages of -1: %v", l.name, err)
			}
		}
		pending, err := c.ListPending(t.Context(), &parleyv1.ListPendingRequest{Topic: "jobs", Group: "g", PageSize: 3, PageToken: tokens[1], Order: parleyv1.PendingOrder_PENDING_ORDER_ATTEMPTS})
		if refusedAs(t, err) != invalid {
			t.Errorf("another order's token: %v, %v", pending, err)
		}
	})
}

func TestAdminReads(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.listed(2, 0)
	b.admin.stats = func(string) (queue.TopicStats, error) {
		g := queue.GroupStats{Group: "g", Unread: 1, Pending: 2, Retrying: 3, Parked: 4, Acked: 5, Dead: 6, Retried: 7, Replayed: 8, Trimmed: 9, Skipped: 10, OldestAge: time.Second, Held: true}
		p := queue.PartitionStats{Partition: 1, Length: 11, Delayed: 12, Produced: 13, Cancelled: 14, DeadLetters: 15, FirstID: "1-1-1", LastID: "1-2-2", Groups: []queue.GroupStats{g}}
		idle := p
		idle.Partition, idle.Groups = 2, []queue.GroupStats{{Group: "g"}}
		return queue.TopicStats{Total: p, Partitions: []queue.PartitionStats{p, idle}, Members: map[string]int{"g": 3}}, nil
	}
	at := time.Date(2031, 2, 3, 4, 5, 6, 7e6, time.UTC)
	b.admin.letters = func(string, string, string, int) ([]queue.DeadLetter, string, error) {
		return []queue.DeadLetter{{
			Message: queue.Message{Key: "k", Payload: []byte{0, 255}, Headers: map[string]string{"a": "b"}}, ID: "1-2-3", MessageID: "1-1-1", Partition: 1,
			Group: "g", Attempts: 4, Reason: "r", Code: "c", ProducedAt: at, DeadAt: at.Add(time.Second),
		}, {ID: "1-2-2"}}, "", nil
	}
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		stats, err := c.GetTopicStats(t.Context(), &parleyv1.GetTopicStatsRequest{Topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		g := &parleyv1.GroupStats{
			Group: "g", Unread: 1, Pending: 2, Retrying: 3, Parked: 4, Acked: 5, Dead: 6, Retried: 7, Replayed: 8, Trimmed: 9, Skipped: 10,
			OldestAge: durationpb.New(time.Second), Consumers: 1, OwnedPartitions: 1,
		}
		p := &parleyv1.PartitionStats{
			Partition: 1, Length: 11, Delayed: 12, Produced: 13, Cancelled: 14, DeadLetters: 15, FirstId: "1-1-1", LastId: "1-2-2", Groups: []*parleyv1.GroupStats{g},
		}
		idle, groups := proto.CloneOf(p), proto.CloneOf(p).GetGroups()
		groups[0].Consumers = 3
		total := &parleyv1.TopicStats{
			Length: 11, Delayed: 12, Produced: 13, Cancelled: 14, DeadLetters: 15, FirstId: "1-1-1", LastId: "1-2-2", Groups: groups,
		}
		idle.Partition, idle.Groups = 2, []*parleyv1.GroupStats{{Group: "g", OldestAge: durationpb.New(0)}}
		want := &parleyv1.GetTopicStatsResponse{Total: total, Partitions: []*parleyv1.PartitionStats{p, idle}}
		if diff := cmp.Diff(want, stats, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		owners, err := c.ListPartitions(t.Context(), &parleyv1.ListPartitionsRequest{Topic: "t", Group: "g"})
		if diff := cmp.Diff([]*parleyv1.PartitionOwner{{
			Partition: 1, StreamId: "s1", Consumer: "c1", NodeId: "n", Epoch: 1 << 60, LeaseLeft: durationpb.New(time.Second),
		}}, owners.GetPartitions(), protocmp.Transform()); err != nil || diff != "" {
			t.Error(diff, err)
		}
		pending, err := c.ListPending(t.Context(), &parleyv1.ListPendingRequest{Topic: "t", Group: "g"})
		minute := durationpb.New(time.Minute)
		if diff := cmp.Diff(&parleyv1.ListPendingResponse{Total: 2, Pending: []*parleyv1.PendingDelivery{
			{MessageId: "0", Partition: 1, StreamId: "s0", Attempt: 2, Idle: minute}, {MessageId: "1", Partition: 1, StreamId: "s1", Consumer: "c1", Attempt: 2, Idle: minute},
		}}, pending, protocmp.Transform()); err != nil || diff != "" {
			t.Error(diff, err)
		}
		letters, err := c.ListDeadLetters(t.Context(), &parleyv1.ListDeadLettersRequest{Topic: "t"})
		if diff := cmp.Diff([]*parleyv1.DeadLetter{{
			DeadLetterId: "1-2-3", MessageId: "1-1-1", Partition: 1, Group: "g", Key: "k", Payload: []byte{0, 255}, Headers: map[string]string{"a": "b"},
			Attempts: 4, Reason: "r", Code: "c", ProduceTime: timestamppb.New(at), DeadLetterTime: timestamppb.New(at.Add(time.Second)),
		}, {DeadLetterId: "1-2-2"}}, letters.GetDeadLetters(), protocmp.Transform()); err != nil || diff != "" {
			t.Error(diff, err)
		}
	})
}

// The calls of AdminService without side effects can be made by GET, with the same response. No
// others can.
func TestAdminGET(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.listed(2, 0)
	b.admin.topic = func(name string) (*queue.Topic, error) { return &queue.Topic{Name: name}, nil }
	b.admin.stats = func(string) (queue.TopicStats, error) { return queue.TopicStats{}, nil }
	methods := append(serviceMethods(parleyv1.File_parley_v1_admin_proto), serviceMethods(parleyv1.File_parley_v1_queue_proto)...)
	reads := map[protoreflect.Name]bool{"GetTopic": true, "ListTopics": true, "GetTopicStats": true, "ListPartitions": true, "ListPending": true, "ListDeadLetters": true, "GetServerInfo": true, "GetErasure": true, "ListErasures": true, "ListRevocations": true, "ListApiKeys": true}
	token, bare := b.mintAs(operator("ada")), b.mintAs(&ident.Principal{Subject: "eve"})
	get := func(m protoreflect.MethodDescriptor, message, token string) (*http.Response, string) {
		t.Helper()
		header := http.Header{"Authorization": {"Bearer " + token}}
		if token == "" {
			header = http.Header{}
		}
		return b.raw(b.h1, http.MethodGet, procedureFor(m)+"?connect=v1&encoding=json&message="+url.QueryEscape(message), header, http.NoBody)
	}
	for _, m := range methods {
		opts, ok := m.Options().(*descriptorpb.MethodOptions)
		read := ok && opts.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		if read != reads[m.Name()] {
			t.Errorf("%s is said to be without side effects: %t", m.Name(), read)
		}
		message := `{"topic":"t","group":"g"}`
		if m.Name() == "GetErasure" {
			message = `{"request_id":"1"}`
		}
		resp, text := get(m, message, token)
		switch {
		case !read && !m.IsStreamingClient() && resp.StatusCode != http.StatusMethodNotAllowed:
			t.Errorf("GET on %s is answered %d %s", m.Name(), resp.StatusCode, text)
		case read && resp.StatusCode != http.StatusOK:
			t.Errorf("GET on %s is answered %d %s", m.Name(), resp.StatusCode, text)
		}
		if !read {
			continue
		}
		if resp, text := get(m, message, ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET on %s without a token is answered %d %s", m.Name(), resp.StatusCode, text)
		}
		if m.Name() == "GetServerInfo" { // any valid token will do, and no request can be invalid
			if resp, text := get(m, message, bare); resp.StatusCode != http.StatusOK {
				t.Errorf("GET on %s by who is no operator is answered %d %s", m.Name(), resp.StatusCode, text)
			}
			continue
		}
		if resp, text := get(m, message, bare); resp.StatusCode != http.StatusForbidden {
			t.Errorf("GET on %s by who is no operator is answered %d %s", m.Name(), resp.StatusCode, text)
		}
		if resp, text := get(m, `{"topic":"{x}","page_size":-1}`, token); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "invalid_argument") {
			t.Errorf("a bad GET on %s is answered %d %s", m.Name(), resp.StatusCode, text)
		}
	}
	c := b.adminClient(1, token, connect.WithHTTPGet())
	if r, err := c.GetTopic(t.Context(), &parleyv1.GetTopicRequest{Topic: "by-get"}); err != nil || r.GetTopic().GetName() != "by-get" {
		t.Errorf("a generated client's GET: %v, %v", r, err)
	}
}
