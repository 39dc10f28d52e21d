package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/erasure"
)

const (
	// erasures is the name of the collection of jobs.
	erasures = "erasures"
	// openErasuresIndex has the jobs that are not finished, by id.
	openErasuresIndex = "open"
)

// Erasures implements erasure.Store. Safe for concurrent use. Reads are linearizable, as those of
// Channels are.
type Erasures struct {
	calls *Channels
	jobs  *mongo.Collection
}

var _ erasure.Store = (*Erasures)(nil)

// Erasures returns a store of erasures in the same database. It is closed with s.
func (s *Store) Erasures() *Erasures { return &Erasures{s.Channels(), s.db.Collection(erasures)} }

// erasureDocument is the stored form of a job.
type erasureDocument struct {
	ID     string        `bson:"_id"`
	UserID string        `bson:"user_id"`
	State  erasure.State `bson:"state"`
	// Open is set unless the job is finished.
	Open        bool      `bson:"open,omitempty"`
	CreatedAt   time.Time `bson:"created_at"`
	ErasedAt    time.Time `bson:"erased_at,omitempty"`
	FinishedAt  time.Time `bson:"finished_at,omitempty"`
	Messages    int64     `bson:"messages"`
	Changes     int64     `bson:"changes"`
	Memberships int64     `bson:"memberships"`
	NextAt      time.Time `bson:"next_at,omitempty"`
	QuietAt     time.Time `bson:"quiet_at,omitempty"`
	Cached      []string  `bson:"cached,omitempty"`
	Sessions    []string  `bson:"sessions,omitempty"`
	Rev         int64     `bson:"rev"`
}

func erasureDocumentOf(j *erasure.Job) erasureDocument {
	return erasureDocument{
		ID: j.ID, UserID: j.UserID, State: j.State, Open: j.State != erasure.Finished, CreatedAt: j.CreatedAt, ErasedAt: j.ErasedAt,
		FinishedAt: j.FinishedAt, Messages: j.Messages, Changes: j.Changes, Memberships: j.Memberships, NextAt: j.NextAt,
		QuietAt: j.QuietAt, Cached: j.Cached, Sessions: j.Sessions, Rev: j.Rev,
	}
}

func (d *erasureDocument) job() erasure.Job {
	return erasure.Job{
		ID: d.ID, UserID: d.UserID, State: d.State, CreatedAt: d.CreatedAt.UTC(), ErasedAt: d.ErasedAt.UTC(), FinishedAt: d.FinishedAt.UTC(),
		Messages: d.Messages, Changes: d.Changes, Memberships: d.Memberships, NextAt: d.NextAt.UTC(), QuietAt: d.QuietAt.UTC(),
		Cached: d.Cached, Sessions: d.Sessions, Rev: d.Rev,
	}
}

// Put implements erasure.Store.
func (e *Erasures) Put(ctx context.Context, job erasure.Job) (erasure.Job, error) {
	err := e.calls.store.read(ctx, func(ctx context.Context) error {
		_, err := e.jobs.InsertOne(ctx, erasureDocumentOf(&job))
		return err
	})
	if mongo.IsDuplicateKeyError(err) {
		return e.Get(ctx, job.ID)
	}
	if err != nil {
		return erasure.Job{}, fmt.Errorf("put erasure: %w", err)
	}
	return job, nil
}

// Save implements erasure.Store.
func (e *Erasures) Save(ctx context.Context, job erasure.Job) (erasure.Job, error) {
	is := bson.D{{Key: "_id", Value: job.ID}, {Key: "rev", Value: job.Rev}}
	job.Rev++
	err := e.calls.write(ctx, func(ctx context.Context) error {
		saved, err := e.jobs.ReplaceOne(ctx, is, erasureDocumentOf(&job))
		if err == nil && saved.MatchedCount == 0 {
			err = erasure.ErrChanged
		}
		return err
	})
	if err != nil {
		return erasure.Job{}, fmt.Errorf("save erasure: %w", err)
	}
	return job, nil
}

// Get implements erasure.Store.
func (e *Erasures) Get(ctx context.Context, id string) (erasure.Job, error) {
	var d erasureDocument
	err := e.calls.read(ctx, func(ctx context.Context) error {
		err := e.jobs.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&d)
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = erasure.ErrNotFound
		}
		return err
	})
	if err != nil {
		return erasure.Job{}, fmt.Errorf("get erasure: %w", err)
	}
	return d.job(), nil
}

// List implements erasure.Store.
func (e *Erasures) List(ctx context.Context, after string, limit int, open bool) (jobs []erasure.Job, err error) {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}}
	opts := options.Find().SetSort(up("_id")).SetLimit(int64(limit))
	if open {
		filter = append(filter, bson.E{Key: "open", Value: true})
		opts.SetHint(openErasuresIndex)
	}
	err = e.calls.read(ctx, func(ctx context.Context) error {
		cursor, err := e.jobs.Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		var docs []erasureDocument
		if err := cursor.All(ctx, &docs); err != nil {
			return err
		}
		jobs = make([]erasure.Job, len(docs))
		for i := range docs {
			jobs[i] = docs[i].job()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	return jobs, nil
}
