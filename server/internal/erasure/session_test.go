package erasure_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// endSession deletes a session and removes its members, as the real one and a Trimmer do.
func (r *rig) endSession(ctx context.Context, channelID string) error {
	return r.fuse.call(func() error {
		rows, err := r.channels.Rows(ctx, []string{channelID})
		if row := rows[channelID]; err == nil && row.State == channel.Live {
			_, err = r.channels.Delete(ctx, channelID, row.SettingsRev, time.Now())
		}
		if err == nil {
			_, err = r.channels.DropMembers(ctx, channelID, 10)
		}
		return err
	})
}

func (m members) Sessions(ctx context.Context, ownerID string, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	return m.r.channels.Sessions(ctx, ownerID, after, min(limit, 2))
}

// Rows returns rows, and afterwards clears what is Deleting, as a Trimmer does a while later.
func (m members) Rows(ctx context.Context, channelIDs []string) (map[string]channel.Row, error) {
	rows, err := m.r.channels.Rows(ctx, channelIDs)
	for id, row := range rows {
		if row.State == channel.Deleting {
			m.r.must(m.r.Clear(ctx, id, 0, 1000))
			m.r.must(m.r.channels.FinishDelete(ctx, id))
		}
	}
	return rows, err
}

// fillSessions makes sessions of zoe and bob, each with a question and an answer about its owner.
func (r *rig) fillSessions() {
	r.t.Helper()
	for i, owner := range []string{"zoe", "zoe", "zoe", "bob"} {
		id := fmt.Sprint("~s", i)
		_, err := r.channels.Create(r.t.Context(), channel.Row{
			ChannelID: id, MembersOnly: true, Rev: 1, CreatedBy: owner, CreatedAt: time.Now(), Title: "title of " + owner,
		}, []string{owner})
		r.must(err)
		question, answer := sendBy(owner, id, "q"), sendBy("bot", id, "a")
		question.Rev, answer.Rev, answer.Content = 1, 1, "answer to "+owner
		r.write(question, answer)
	}
}

// wantNoSessions checks that nothing is left of the sessions of zoe, and everything of bob's.
func (r *rig) wantNoSessions() {
	r.t.Helper()
	ctx := r.t.Context()
	for i := range 4 {
		id := fmt.Sprint("~s", i)
		rows, err := r.channels.Rows(ctx, []string{id})
		r.must(err)
		log, err := r.Entries(ctx, id, message.Range{Limit: 100})
		r.must(err)
		row := rows[id]
		if i == 3 {
			if row.State != channel.Live || row.CreatedBy != "bob" || row.Title != "title of bob" || len(log) != 2 || log[1].Content != "answer to bob" {
				r.t.Errorf("the session of bob: %+v, %+v", row, log)
			}
			continue
		}
		if row.State != channel.Deleted || row.CreatedBy != "" || row.Title != "" {
			r.t.Errorf("row %+v", row)
		}
		for i := range log {
			if e := &log[i]; e.Content != "" || e.FromID != message.ErasedUser || len(e.Metadata) > 0 {
				r.t.Errorf("entry %+v", e)
			}
		}
	}
}

// An erasure deletes the sessions of the user, with the assistant's answers, and is not Erased
// before they are cleared.
func TestErasureOfSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fillSessions()
	_, err := r.jobs.Put(t.Context(), erasure.Job{ID: "1", UserID: "zoe", State: erasure.Running})
	r.must(err)
	runner := erasure.New(r.config())
	lifecycletest.Start(t, runner)
	job := r.await("1", erasure.Erased)
	r.wantNoSessions()
	if len(job.Sessions) > 0 {
		t.Errorf("job %+v", job)
	}
}
