package redislog

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// smallRecord is the size up to which S:sizes says nothing about a record.
const smallRecord = 4 << 10

// Read implements qlog.Store.
func (s *Store) Read(ctx context.Context, ref qlog.Ref, after qlog.ID, n int) ([]qlog.Entry, error) {
	if n <= 0 {
		return nil, nil
	}
	from := strconv.FormatInt(int64(after)+1, 10) + "-0"
	reply, err := s.client.Do(ctx, "xrange", s.keys.main(ref), from, "+", "count", min(n, qlog.MaxReadEntries)).Result()
	var entries []qlog.Entry
	if err != nil {
		err = readError(err)
	} else {
		entries, err = decodeEntries(ref.Partition, reply)
	}
	if err != nil {
		return nil, fmt.Errorf("read partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	bytes := 0
	for i := range entries {
		bytes += sizeOf(&entries[i])
		if i > 0 && bytes > qlog.MaxCallBytes {
			return entries[:i], nil
		}
	}
	return entries, nil
}

// ReadEntries implements qlog.Store. It reads in several steps if the entries may have more than
// MaxCallBytes together.
func (s *Store) ReadEntries(ctx context.Context, ref qlog.Ref, at []qlog.Pos) ([]qlog.Entry, error) {
	if len(at) == 0 {
		return nil, nil
	}
	entries, err := s.readEntries(ctx, ref, at)
	if err != nil {
		return nil, fmt.Errorf("read %d entries of partition %d of %s: %w", len(at), ref.Partition, ref.Topic, err)
	}
	return entries, nil
}

func (s *Store) readEntries(ctx context.Context, ref qlog.Ref, at []qlog.Pos) ([]qlog.Entry, error) {
	at = slices.Clone(at)
	slices.SortFunc(at, comparePos)
	at = slices.Compact(at)
	sizes, err := s.sizesOf(ctx, ref, at)
	if err != nil {
		return nil, err
	}
	var entries []qlog.Entry
	for first := 0; first < len(at); {
		last, bytes := first, sizes[first]
		for last+1 < len(at) && bytes+sizes[last+1] <= qlog.MaxCallBytes {
			last++
			bytes += sizes[last]
		}
		page, err := s.readPage(ctx, ref, at[first:last+1])
		if err != nil {
			return nil, err
		}
		entries = append(entries, page...)
		first = last + 1
	}
	return entries, nil
}

// sizesOf returns for each position how large its record may be.
func (s *Store) sizesOf(ctx context.Context, ref qlog.Ref, at []qlog.Pos) ([]int, error) {
	fields := make([]string, len(at))
	for i, pos := range at {
		fields[i] = "n" + strconv.FormatInt(pos.Ord/256, 10)
	}
	found, err := s.client.HMGet(ctx, s.keys.sizes(ref), fields...).Result()
	if err != nil {
		return nil, readError(err)
	}
	sizes := make([]int, len(at))
	for i := range sizes {
		text, _ := found[i].(string)
		n, err := strconv.Atoi(text)
		if err != nil {
			n = smallRecord
		}
		sizes[i] = n
	}
	return sizes, nil
}

// readPage reads entries in one round trip, those with consecutive ordinals by one command.
func (s *Store) readPage(ctx context.Context, ref qlog.Ref, at []qlog.Pos) ([]qlog.Entry, error) {
	var ranges []*redis.Cmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for first := 0; first < len(at); {
			last := first
			for last+1 < len(at) && at[last+1].Ord == at[last].Ord+1 {
				last++
			}
			ranges = append(ranges, p.Do(ctx, "xrange", s.keys.main(ref), at[first].String(), at[last].String(), "count", last-first+1))
			first = last + 1
		}
		return nil
	})
	if err != nil {
		return nil, readError(err)
	}
	var entries []qlog.Entry
	for _, r := range ranges {
		page, err := decodeEntries(ref.Partition, r.Val())
		if err != nil {
			return nil, err
		}
		entries = append(entries, page...)
	}
	return entries, nil
}
