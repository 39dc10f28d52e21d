package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// endWait is how long the server may take, after the last line, to close what is abandoned.
	endWait = 90 * time.Second
	// reads is the number of sessions that are read at a time.
	reads = 16
	// closeSlack is by how much more than sessions.open_timeout the close of an abandoned message may
	// take: the nodes look every 5 s, and a shard may be without an owner for some seconds.
	closeSlack = 40 * time.Second
)

// settled waits until the abandoned answers are closed and the live subscribers have everything.
func (j *job) settled(ctx context.Context) error {
	for until := time.Now().Add(endWait); ; {
		waiting, err := j.waiting(ctx)
		if err != nil {
			return err
		}
		if waiting == "" {
			j.sayf("all answers are closed, and the live subscribers have everything")
			return nil
		}
		if time.Now().After(until) {
			j.Wrongf("%s after the last line: %s", endWait, waiting)
			j.explain(ctx)
			return nil
		}
		if err := verdict.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// explain reports what Redis has of the abandoned messages that are open, and what the nodes
// logged.
func (j *job) explain(ctx context.Context) {
	client := j.fleet.Redis.Client()
	defer client.Close()
	for _, a := range j.audience.abandoned() {
		texts, err := client.HGetAll(ctx, "chat:session:"+a.session.id+":open").Result()
		j.sayf("%s of %s, message %s, is open; Redis has %v, %v", a.id, a.session.id, a.msgID, texts, err)
	}
	for _, n := range j.fleet.Nodes() {
		text, err := os.ReadFile(n.LogFile())
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		j.sayf("the end of the log of node %d:\n%s", n.Index(), strings.Join(lines[max(0, len(lines)-logged):], "\n"))
	}
}

// logged is the number of lines of each node's log that are shown after a failure.
const logged = 40

// waiting says what is not complete yet.
func (j *job) waiting(ctx context.Context) (string, error) {
	open, err := j.open(ctx)
	if err != nil {
		return "", err
	}
	if len(open) > 0 {
		a := open[0]
		return fmt.Sprintf("%d abandoned messages are open, such as %s of %s, which was opened at %s (repeated: %t) and whose generator died at %s",
			len(open), a.id, a.session.id, a.opened.Format(time.TimeOnly), a.repeated, a.died.Format(time.TimeOnly)), nil
	}
	live, _ := j.audience.snapshot()
	for _, s := range live {
		if text := s.lacks(j.oracle); text != "" {
			return s.name + ": " + text, nil
		}
	}
	return "", nil
}

// open returns the abandoned answers that are open.
func (j *job) open(ctx context.Context) (open []*answer, err error) {
	for _, a := range j.audience.abandoned() {
		m, err := j.message(ctx, a)
		if err != nil {
			return nil, err
		}
		if m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			open = append(open, a)
		} else {
			a.listEnd()
		}
	}
	return open, nil
}

// ended waits until no abandoned message is open.
func (j *job) ended(ctx context.Context) error {
	for {
		if open, err := j.open(ctx); err != nil || len(open) == 0 {
			return err
		}
		if err := verdict.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// message returns the message of an answer.
func (j *job) message(ctx context.Context, a *answer) (*parley.Message, error) {
	for m, err := range j.clients.all[0].Session(a.session.id).Messages(ctx) {
		if err != nil || m.GetClientMsgId() == a.id {
			return m, err
		}
	}
	return nil, fmt.Errorf("%s of %s is missing", a.id, a.session.id)
}

// abandoned returns the answers whose generators have died and whose end nobody has seen.
func (a *audience) abandoned() (open []*answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, answer := range a.answers {
		answer.mu.Lock()
		if !answer.died.IsZero() && answer.ended.IsZero() {
			open = append(open, answer)
		}
		answer.mu.Unlock()
	}
	return open
}

// verify compares every session everywhere with the logs.
func (j *job) verify(ctx context.Context) error {
	if err := j.checkSessions(ctx); err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(j.oracle.sessions))
	finals := make([][]*parley.Message, len(ids))
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(reads)
	for i, id := range ids {
		work.Go(func() (err error) {
			finals[i], err = j.checkSession(working, id)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	j.finals = make(map[string][]*parley.Message, len(ids))
	for i, id := range ids {
		j.finals[id] = finals[i]
	}
	j.sayf("listed %d sessions through each node", len(ids))
	live, late := j.audience.snapshot()
	for _, s := range append(live, late...) {
		s.check(j.finals)
	}
	return j.checkRedis(ctx)
}

// checkSessions compares the list of all sessions.
func (j *job) checkSessions(ctx context.Context) error {
	found := 0
	for s, err := range j.clients.all[0].AllSessions(ctx) {
		if err != nil {
			return fmt.Errorf("list the sessions: %w", err)
		}
		found++
		wants, ok := j.oracle.sessions[s.GetSessionId()]
		if owner := j.oracle.owners[s.GetSessionId()]; !ok || s.GetOwnerId() != owner || s.GetCount() != int64(len(wants)) {
			j.Wrongf("the list of sessions has %v; its owner must be %q, with %d messages", s, owner, len(wants))
		}
	}
	if found != len(j.oracle.sessions) {
		j.Wrongf("the list of sessions has %d, not %d", found, len(j.oracle.sessions))
	}
	return nil
}

// checkSession compares a session with the log, as every node has it. It returns its messages.
func (j *job) checkSession(ctx context.Context, id string) (first []*parley.Message, err error) {
	for n, client := range j.clients.nodes {
		ctx := ctx
		if n == 0 {
			ctx = user.As(ctx, j.oracle.owners[id])
		}
		var list []*parley.Message
		for m, err := range client.Session(id).Messages(ctx, parley.AfterSeq(0)) {
			if err != nil {
				return nil, fmt.Errorf("node %d, %s: %w", n, id, err)
			}
			list = append(list, m)
		}
		j.Add("messages listed", len(list))
		wants := j.oracle.sessions[id]
		if len(list) != len(wants) {
			j.Wrongf("node %d, %s has %d messages, not %d", n, id, len(list), len(wants))
		}
		for k, m := range list[:min(len(list), len(wants))] {
			if problem := j.differs(id, k, &wants[k], m); problem != "" {
				j.Wrongf("node %d, %s, message %d: %s: %v", n, id, k+1, problem, m)
			}
			if k > 0 && m.GetSeq() <= list[k-1].GetSeq() {
				j.Wrongf("node %d, %s, message %d has the seq %d after %d", n, id, k+1, m.GetSeq(), list[k-1].GetSeq())
			}
		}
		if n == 0 {
			first = list
		}
	}
	return first, nil
}

// differs compares a message with the line of the log. It returns what is wrong.
func (j *job) differs(id string, k int, w *want, m *parley.Message) string {
	role, from := parley.SessionRoleUser, j.oracle.owners[id]
	if w.answer {
		role, from = parley.SessionRoleAssistant, assistant
	}
	switch {
	case m.GetClientMsgId() != w.id:
		return "it must be " + w.id
	case m.GetMsgType() != string(role) || m.GetFromId() != from:
		return fmt.Sprintf("it must be of %s, with the role %s", from, role)
	case m.GetCount() != int64(k+1):
		return "its count is wrong"
	case !w.answer && (m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_SENT || m.GetContent() != w.text):
		return fmt.Sprintf("it must be %q", w.text)
	case w.answer:
		return j.answerDiffers(id, w, m)
	}
	return ""
}

// answerDiffers compares an answer with the line of the log and with what was done with it.
func (j *job) answerDiffers(id string, w *want, m *parley.Message) string {
	a := j.audience.find(id, m)
	if a == nil {
		return "it was not answered"
	}
	a.mu.Lock()
	written, shown, died, ended, seen := a.written, a.shown, a.died, a.ended, !a.listed
	a.mu.Unlock()
	text := m.GetContent()
	switch {
	case m.GetStatus() != a.fate.status():
		return fmt.Sprintf("its status must be %s", a.fate.status())
	case a.fate == completed && text != w.text:
		return fmt.Sprintf("it must be %q", w.text)
	case a.fate == completed:
		return ""
	case !strings.HasPrefix(w.text, text) || len(text) > written:
		return fmt.Sprintf("it must be a prefix of what was written of %q, %d bytes", w.text, written)
	case !a.isBound(len(text)):
		return fmt.Sprintf("it ends in a word of %q", w.text)
	case len(text) < shown && !a.mayLack(j.faults):
		return fmt.Sprintf("it has %d bytes, and %d had been shown", len(text), shown)
	case a.fate == abandoned && seen && ended.Sub(died) > j.OpenTimeout+closeSlack:
		return fmt.Sprintf("it was closed %.0f s after its generator had died", ended.Sub(died).Seconds())
	}
	return ""
}

// isBound reports whether n is the length of some of the first pieces.
func (a *answer) isBound(n int) bool {
	for _, p := range a.pieces {
		if n <= 0 {
			break
		}
		n -= len(p)
	}
	return n == 0
}

// lacks says what a live subscriber does not have yet.
func (s *subscriber) lacks(o *oracle) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, f := range s.channels {
		if got, all := len(f.messages), len(o.sessions[strings.TrimPrefix(channel, "~")]); got < all {
			return fmt.Sprintf("has %d messages of %d of %s", got, all, channel)
		}
		for _, m := range f.messages {
			if m.status == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
				return fmt.Sprintf("has message %d of %s as open", m.seq, channel)
			}
		}
	}
	return ""
}

// check compares what a subscriber has with the lists. A late one left before the end.
func (s *subscriber) check(finals map[string][]*parley.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, f := range s.channels {
		list := finals[strings.TrimPrefix(channel, "~")]
		if len(f.messages) > len(list) || s.until == nil && len(f.messages) < len(list) {
			s.Wrongf("%s, %s: has %d messages of %d", s.name, channel, len(f.messages), len(list))
			continue
		}
		for k, h := range f.messages {
			if s.until != nil && h.status == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
				continue
			}
			m := list[k]
			if h.id != m.GetClientMsgId() || h.seq != m.GetSeq() || h.content != m.GetContent() || h.status != m.GetStatus() ||
				h.changed != m.GetChangedSeq() {
				s.Wrongf("%s, %s: has %+v, and the list has %v", s.name, channel, *h, m)
			}
			s.Add("messages of subscribers compared", 1)
		}
	}
}
