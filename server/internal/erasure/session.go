package erasure

import (
	"context"
	"fmt"
	"slices"

	"github.com/parleyhq/parley/server/internal/channel"
)

// endSessions deletes sessions that the user owns, with what others said in them, and reports
// whether it has saved the job. It first records them, because they are in no list any more once
// they are deleted. If there is no room for another one, it leaves it for later.
func (r *Runner) endSessions(ctx context.Context, job *Job) (more bool, err error) {
	limit := stepSessions - len(job.Sessions)
	if limit <= 0 {
		return false, nil
	}
	rows, err := r.cfg.Channels.Sessions(ctx, job.UserID, channel.SessionPlace{}, limit)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	for i := range rows {
		if id := rows[i].ChannelID; !slices.Contains(job.Sessions, id) {
			job.Sessions = append(job.Sessions, id)
		}
	}
	job.QuietAt = now()
	if err := r.save(ctx, job); err != nil {
		return false, err
	}
	for i := range rows {
		if err := r.cfg.EndSession(ctx, rows[i].ChannelID); err != nil {
			return false, fmt.Errorf("delete a session: %w", err)
		}
	}
	return true, nil
}

// sessionsCleared reports whether nothing is left in the sessions that the job has deleted.
// Otherwise it saves the job, to be continued later.
func (r *Runner) sessionsCleared(ctx context.Context, job *Job) (cleared bool, err error) {
	if len(job.Sessions) == 0 {
		return true, nil
	}
	rows, err := r.cfg.Channels.Rows(ctx, job.Sessions)
	if err != nil {
		return false, err
	}
	left := slices.DeleteFunc(slices.Clone(job.Sessions), func(id string) bool {
		row, ok := rows[id]
		return !ok || row.State == channel.Deleted
	})
	for _, id := range left {
		if row := rows[id]; row.State == channel.Live {
			if err := r.cfg.EndSession(ctx, id); err != nil {
				return false, fmt.Errorf("delete a session: %w", err)
			}
		}
	}
	if job.Sessions = left; len(left) > 0 {
		job.NextAt = now().Add(r.cfg.Every)
	}
	return false, r.save(ctx, job)
}
