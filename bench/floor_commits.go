package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The bytes of an entry in the embedded store besides its message's content: a record of ids and
// numbers, and the three index keys, by channel, by sender and by uuid.
const (
	entryRecordBytes = 180
	entryKeyBytes    = 24
	clientKeyBytes   = 64
	messageKeyBytes  = 56
)

// floorCommits writes the bytes that sends would write, synced by Pebble's own group commit,
// without encoding, look-ups or network. Its arguments are an empty directory, the number of
// writers, the bytes of a content, and the duration. It outputs the commits per second.
func floorCommits(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 4 {
		return errors.New("requires the arguments directory, writers, bytes, duration")
	}
	writers, err1 := strconv.Atoi(args[1])
	content, err2 := strconv.Atoi(args[2])
	duration, err3 := time.ParseDuration(args[3])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	db, err := pebble.Open(args[0], &pebble.Options{Logger: quietPebble{}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var commits atomic.Int64
	var group sync.WaitGroup
	failed := make([]error, writers)
	began := time.Now()
	for w := range writers {
		group.Go(func() {
			for n := uint64(0); ctx.Err() == nil && failed[w] == nil; n++ {
				failed[w] = commitEntry(db, w, n, content)
				commits.Add(1)
			}
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return out.Encode(float64(commits.Load()) / time.Since(began).Seconds())
}

// commitEntry writes one entry's keys and values, and waits until they are on disk.
func commitEntry(db *pebble.DB, writer int, n uint64, content int) error {
	key := func(kind byte, size int) []byte {
		k := make([]byte, size)
		k[0] = kind
		binary.BigEndian.PutUint32(k[size-12:], uint32(writer)) //nolint:gosec // some hundreds
		binary.BigEndian.PutUint64(k[size-8:], n)
		return k
	}
	batch := db.NewBatch()
	place := key('p', entryKeyBytes)
	err := errors.Join(
		batch.Set(key('e', entryKeyBytes), make([]byte, entryRecordBytes+content), nil),
		batch.Set(key('c', clientKeyBytes), place[:8], nil),
		batch.Set(key('o', entryKeyBytes), place, nil),
		batch.Set(key('m', messageKeyBytes), place[:8], nil),
		db.Apply(batch, pebble.Sync),
	)
	if err := errors.Join(err, batch.Close()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// quietPebble discards Pebble's log.
type quietPebble struct{}

// Infof implements pebble.Logger.
func (quietPebble) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (quietPebble) Errorf(string, ...any) {}

// Fatalf implements pebble.Logger. It must not return.
func (quietPebble) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...)) //nolint:forbidigo // Pebble can't continue
}
