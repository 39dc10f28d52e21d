// Package erasure erases the messages and memberships of users.
//
// An erasure is a job, which is stored. The job has no place in the data: what is left to do is
// found by the user's id, and each step removes that id from what it has done. So a job that was
// interrupted anywhere continues, every step may be repeated, and two runners only repeat each
// other's work.
//
//	Running    sessions that the user owns are deleted, messages are recalled by message.ErasedUser,
//	           other entries lose the user, memberships end; later the records of the user are
//	           removed from channels
//	Erased     nothing is left; the job looks again until the event stream has forgotten the user
//	Finished   done
package erasure

import (
	"context"
	"errors"
	"time"
)

// State is how far an erasure has come. The values are stored and must not change.
type State int8

// The states, in the order in which a job passes through them.
const (
	Running  State = 1
	Erased   State = 2
	Finished State = 3
)

// Job is the erasure of a user.
type Job struct {
	// ID is the id of the request that started the job.
	ID string
	// UserID is kept forever, so that the erasure can be repeated after a restore.
	UserID string
	State  State
	// CreatedAt is when the job was started, ErasedAt when it became Erased, and FinishedAt when it
	// became Finished. In UTC and whole milliseconds; zero if that has not happened.
	CreatedAt, ErasedAt, FinishedAt time.Time
	// Messages counts the erased messages, Changes the other entries of logs that lost their user, and
	// Memberships the memberships that ended. Repeated steps may count again.
	Messages, Changes, Memberships int64
	// NextAt is when the job must be continued; zero means at once.
	NextAt time.Time
	// QuietAt is when the last membership or entry was found. Records about channels are removed no
	// earlier than Config.Settle after it. Zero means that the job has not looked yet.
	QuietAt time.Time
	// Sessions are the channels of deleted sessions that are not known to be cleared yet.
	Sessions []string
	// Cached are channels whose cached messages must be dropped, at most maxCached.
	Cached []string
	// Rev increases with each change of the stored job.
	Rev int64
}

// ErrNotFound reports that there is no job with this id.
var ErrNotFound = errors.New("erasure not found")

// ErrChanged reports that a stored job has another Rev.
var ErrChanged = errors.New("the erasure has changed")

// Store keeps jobs. All methods may be called concurrently. An acknowledged write is durable, and
// every later read on any node sees it.
type Store interface {
	// Put stores a new job, unless there is one with its ID. It returns the stored one.
	Put(ctx context.Context, job Job) (Job, error)
	// Save replaces a job that is stored with the same Rev, and returns it with the next Rev. It
	// returns ErrChanged if the stored one has another Rev; after an unknown outcome, that can be the
	// result of the call itself.
	Save(ctx context.Context, job Job) (Job, error)
	// Get returns a job, or ErrNotFound.
	Get(ctx context.Context, id string) (Job, error)
	// List returns up to limit jobs whose ids are greater than after, in byte order of the ids; with
	// open set, only those that are not Finished.
	List(ctx context.Context, after string, limit int, open bool) ([]Job, error)
}
