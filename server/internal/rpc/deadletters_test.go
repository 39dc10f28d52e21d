package rpc

import (
	"fmt"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func selectedIDs(ids ...string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: ids}}}
}

func selectedGroup(group string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: group}}
}

var selectedAll = &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_All{All: &parleyv1.AllDeadLetters{}}}

// kill makes the messages that the consumer works on dead letters.
func (s *scene) kill() {
	s.t.Helper()
	var items []*parleyv1.NackItem
	for _, m := range s.messages[3:] {
		items = append(items, &parleyv1.NackItem{Token: m.GetToken(), Code: "late", Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}})
	}
	r, err := s.client(0, s.mintAs(operator("ada"))).Nack(s.t.Context(), &parleyv1.NackRequest{SessionId: s.stream.started.GetSessionId(), Items: items})
	if got := toldOf(r.GetResults()); err != nil || fmt.Sprint(got) != "[ok ok ok]" {
		s.t.Fatal(got, err)
	}
}

// letters lists dead letters in pages of two.
func (s *scene) letters(r *parleyv1.ListDeadLettersRequest) (all []*parleyv1.DeadLetter) {
	s.t.Helper()
	r.Topic, r.PageSize = s.topic, 2
	for {
		page, err := s.c.ListDeadLetters(s.t.Context(), r)
		if err != nil || len(page.GetDeadLetters()) > 2 {
			s.t.Fatal(page, err)
		}
		all = append(all, page.GetDeadLetters()...)
		if r.PageToken = page.GetNextPageToken(); r.GetPageToken() == "" {
			return all
		}
	}
}

func TestQueueDeadLetters(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		s.kill()
		all := s.letters(&parleyv1.ListDeadLettersRequest{Full: true, Group: "work"})
		if len(all) != 4 {
			s.t.Fatalf("listed %v", all)
		}
		oldest, m := all[3], s.messages[1]
		if oldest.GetMessageId() != m.GetMessageId() || oldest.GetPartition() != 1 || oldest.GetGroup() != "work" || oldest.GetKey() != "k" ||
			string(oldest.GetPayload()) != string(m.GetPayload()) || oldest.GetHeaders()["h"] != "v" || oldest.GetAttempts() != 1 ||
			oldest.GetReason() != "it is bad" || oldest.GetCode() != "bad" || oldest.GetDeadLetterTime() == nil ||
			!oldest.GetProduceTime().AsTime().Equal(m.GetProduceTime().AsTime()) || int(oldest.GetPayloadBytes()) != len(m.GetPayload()) {
			s.t.Errorf("listed %v", oldest)
		}
		late := s.letters(&parleyv1.ListDeadLettersRequest{Code: "late"})
		if len(late) != 3 || len(late[0].GetPayload()) != 0 || late[0].GetMessageId() != s.messages[5].GetMessageId() {
			s.t.Errorf("with the code: %v", late)
		}
		_, err := s.c.ListDeadLetters(s.t.Context(), &parleyv1.ListDeadLettersRequest{Topic: s.topic, Group: "none"})
		s.refused(`not_found GROUP_NOT_FOUND "group" 0`, err)
		page, err := s.c.ListDeadLetters(s.t.Context(), &parleyv1.ListDeadLettersRequest{Topic: s.topic, PageSize: 1})
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = s.c.ListDeadLetters(s.t.Context(), &parleyv1.ListDeadLettersRequest{Topic: s.topic, Code: "late", PageToken: page.GetNextPageToken()})
		s.refused(`invalid_argument PAGE_TOKEN_INVALID "page_token" 0`, err)

		purge := &parleyv1.PurgeDeadLettersRequest{Topic: s.topic, Selection: selectedIDs(oldest.GetDeadLetterId(), late[0].GetDeadLetterId()), Confirm: "no"}
		_, err = s.c.PurgeDeadLetters(s.t.Context(), purge)
		s.refused(`failed_precondition CONFIRMATION_REQUIRED "confirm" 0`, err)
		purge.Confirm = s.topic
		for _, want := range []int64{2, 0} {
			if r, err := s.c.PurgeDeadLetters(s.t.Context(), purge); err != nil || r.GetPurged() != want {
				s.t.Errorf("purged %v, %v", r, err)
			}
		}
		purge.Selection = selectedGroup("none")
		_, err = s.c.PurgeDeadLetters(s.t.Context(), purge)
		s.refused(`not_found GROUP_NOT_FOUND "selection.group" 0`, err)
		purge.Selection = selectedAll
		if r, err := s.c.PurgeDeadLetters(s.t.Context(), purge); err != nil || r.GetPurged() != 2 {
			s.t.Errorf("purged %v, %v", r, err)
		}
	})
}

// Dead letters go back to their group once, or become new messages of another topic once.
func TestQueueReplay(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		replay := func(want int64, more bool, r *parleyv1.ReplayDeadLettersRequest) {
			s.t.Helper()
			r.Topic = s.topic
			got, err := s.c.ReplayDeadLetters(s.t.Context(), r)
			if err != nil || got.GetReplayed() != want || got.GetMore() != more {
				s.t.Errorf("replayed %v, %v", got, err)
			}
		}
		refused := func(want string, r *parleyv1.ReplayDeadLettersRequest) {
			s.t.Helper()
			r.Topic = s.topic
			_, err := s.c.ReplayDeadLetters(s.t.Context(), r)
			s.refused(want, err)
		}
		refused(`not_found GROUP_NOT_FOUND "selection.group" 0`, &parleyv1.ReplayDeadLettersRequest{Selection: selectedGroup("none")})
		refused(`invalid_argument INVALID_FIELD "selection.ids.dead_letter_ids" 0`, &parleyv1.ReplayDeadLettersRequest{Selection: selectedIDs("1-x")})
		refused(`not_found TOPIC_NOT_FOUND "to_topic" 0`, &parleyv1.ReplayDeadLettersRequest{Selection: selectedAll, ToTopic: "none"})
		refused(`invalid_argument INVALID_FIELD "to_topic" 0`, &parleyv1.ReplayDeadLettersRequest{Selection: selectedAll, ToTopic: s.topic})

		first := s.letters(&parleyv1.ListDeadLettersRequest{})[0].GetDeadLetterId()
		replay(1, false, &parleyv1.ReplayDeadLettersRequest{Selection: selectedIDs(first)})
		replay(0, false, &parleyv1.ReplayDeadLettersRequest{Selection: selectedIDs(first)})
		if d := s.stream.next(); d.GetMessageId() != s.messages[1].GetMessageId() || d.GetAttempt() != 1 {
			s.t.Errorf("delivered %v", d)
		}

		s.kill()
		other := s.topic + "-other"
		s.create(s.t, other)
		replay(1, true, &parleyv1.ReplayDeadLettersRequest{Selection: selectedGroup("work"), ToTopic: other, Limit: 1})
		replay(2, false, &parleyv1.ReplayDeadLettersRequest{Selection: selectedAll, ToTopic: other})
		replay(0, false, &parleyv1.ReplayDeadLettersRequest{Selection: selectedAll, ToTopic: other})
		stream := openSession(s.t, s.client(0, s.mintAs(operator("ada"))), consumes(other))
		for _, m := range s.messages[3:] {
			if d := stream.next(); string(d.GetPayload()) != string(m.GetPayload()) || d.GetKey() != "k" || d.GetHeaders()["h"] != "v" || d.GetMessageId() == m.GetMessageId() {
				s.t.Errorf("delivered %v", d)
			}
		}
		if left := s.letters(&parleyv1.ListDeadLettersRequest{}); len(left) > 0 {
			s.t.Errorf("left %v", left)
		}
	})
}

// A dead letter that is produced again with the same key, because nobody knows whether it was, is
// stored once.
func TestLetterProducer(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	p := LetterProducer{b.producers}
	letter := qlog.Letter{
		Body:    bodyOf(t, "k", "payload", map[string]string{"h": "v"}),
		Options: qlog.Options{MaxAttempts: 7, Timeout: time.Second, TTL: time.Hour, UniqueKey: "u"},
	}
	letters := []inspect.KeyedLetter{{Key: "replay:1", Letter: letter}, {Key: "replay:2", Letter: letter}}
	for range 2 {
		if errs, err := p.ProduceLetters(t.Context(), "jobs", letters); err != nil || len(errs) != 2 || errs[0] != nil || errs[1] != nil {
			t.Fatal(errs, err)
		}
	}
	topic, err := b.admin.Topic(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for partition := range 2 {
		entries, err := b.store.Walk(t.Context(), topic.Ref(partition), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			stored++
			want := qlog.Options{MaxAttempts: 7, Timeout: time.Second, TTL: time.Hour}
			if e := &entries[i]; e.Options != want || e.Key != "k" || string(bodyFields(e.Body).GetPayload()) != "payload" {
				t.Errorf("stored %+v", e)
			}
		}
	}
	if stored != 2 {
		t.Errorf("%d messages are stored", stored)
	}
	if _, err := p.ProduceLetters(t.Context(), "none", letters); !fault.Is(err, fault.TopicNotFound) || refusedField(err) != "to_topic" {
		t.Errorf("to no topic: %v", err)
	}
}

// refusedField returns the field of a fault.
func refusedField(err error) string {
	f, _ := fault.As(err)
	return f.Field
}
