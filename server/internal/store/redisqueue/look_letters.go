package redisqueue

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	lookLetters = newScript("look_letters", 2)
	lookPurge   = newScript("look_purge", 3, "lib_letters")
)

// letterStep is how many dead letters one call of a script looks at.
const letterStep = 100

// DeadLetters implements queue.LookStore. It looks at n dead letters at most, so that with a group it may give fewer, or none,
// though there are more.
func (s *Store) DeadLetters(
	ctx context.Context, ref queue.Ref, group string, before queue.EntryID, n int,
) (letters []queue.DeadLetter, next queue.EntryID, more bool, err error) {
	start := "+"
	if !before.IsZero() {
		start = "(" + before.String()
	}
	reply, err := s.read(ctx, lookLetters, []string{s.keys.meta(ref), s.keys.deadLetters(ref)}, ref.UID, start, group, n)
	if err != nil {
		return nil, queue.EntryID{}, false, fmt.Errorf("dead letters in partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	r := readReply(reply)
	next, more = r.id(), r.number() == 1
	for r.more() {
		pair := reader{fields: r.list()}
		id, raw := pair.id(), pair.next()
		if pair.err != nil {
			r.err = pair.err
			break
		}
		letter, err := decodeLetter(ref.Partition, id, raw)
		if err != nil {
			r.err = fmt.Errorf("dead letter %s: %w", id, err)
			break
		}
		letters = append(letters, letter)
	}
	if r.err != nil {
		return nil, queue.EntryID{}, false, fmt.Errorf("dead letters in partition %d of %s: %w", ref.Partition, ref.Topic, r.err)
	}
	return letters, next, more, nil
}

// decodeLetter reads a dead letter. Of one that can't be read it gives what there is, with the bytes of the record as its payload.
func decodeLetter(partition int, id queue.EntryID, raw any) (queue.DeadLetter, error) {
	all, err := decodeFields(raw)
	if err != nil {
		return queue.DeadLetter{}, err
	}
	// What is damaged must still be text, or the whole page could not be told.
	text := func(name string) string { return strings.ToValidUTF8(all.text(name), "\uFFFD") }
	letter := queue.DeadLetter{
		ID: queue.MessageID(partition, id), MessageID: text("i"), Partition: partition, Group: text("g"),
		Reason: text("r"), Code: text("c"), DeadAt: time.UnixMilli(int64(id.MS)), //nolint:gosec // Redis' clock
	}
	if letter.Message, err = all.record(); err != nil {
		letter.Key, letter.Payload = text("k"), []byte(cmp.Or(all.text("d"), all.text("x")))
		letter.Reason = cmp.Or(letter.Reason, unreadableLetter)
	}
	if attempts, err := all.number("a"); err == nil {
		letter.Attempts = int(attempts)
	}
	if produced, err := all.producedAt(letter.MessageID); err == nil {
		letter.ProducedAt = produced
	}
	return letter, nil
}

// unreadableLetter is the reason of a dead letter that tells none and can't be read.
const unreadableLetter = "the dead letter can't be read"

// choice says which dead letters a call means, and goes on from page to page.
type choice struct {
	start string
	group string
	ids   []queue.EntryID
	// left is how many may still be done.
	left int
	done bool
}

func choose(group string, ids []queue.EntryID, n int) *choice {
	c := &choice{start: "-", group: group, ids: ids, left: n}
	if len(ids) > 0 {
		c.left = len(ids)
	}
	c.done = c.left <= 0
	return c
}

// page gives the arguments of a script's next call: where it begins, how many it looks at, the group, and the ids.
func (c *choice) page() (start string, n int, ids []any) {
	n = min(c.left, letterStep)
	for _, id := range c.ids[:min(len(c.ids), letterStep)] {
		ids = append(ids, id.String())
	}
	return c.start, n, ids
}

// turn goes on after a page that did so many, and looked at dead letters up to one.
func (c *choice) turn(did int64, last queue.EntryID, more bool) {
	if len(c.ids) > 0 {
		c.ids = c.ids[min(len(c.ids), letterStep):]
		c.done = len(c.ids) == 0
		return
	}
	c.left -= int(did)
	c.start = from(last)
	c.done = !more || c.left <= 0
}

// more reports whether there may be some that were chosen but not looked at: only if not all of those were to be done.
func (c *choice) more(more bool) bool { return more && c.left <= 0 && len(c.ids) == 0 }

// Purge implements queue.LookStore. One that is on its way to another partition goes there first, and is not purged. It goes
// page by page; after an error the earlier ones are done, and told.
func (s *Store) Purge(
	ctx context.Context, ref queue.Ref, group string, ids []queue.EntryID, n int,
) (purged int64, more bool, err error) {
	c := choose(group, ids, n)
	for !c.done {
		start, n, args := c.page()
		did, last, pageMore, moving, err := s.purge(ctx, ref, start, n, group, false, args)
		if err != nil {
			return purged, false, err
		}
		purged += did
		for _, id := range moving {
			n, err := s.purgeMoving(ctx, ref, group, id)
			if err != nil {
				return purged, false, err
			}
			purged, did = purged+n, did+n
		}
		c.turn(did, last, pageMore)
		more = c.more(pageMore)
	}
	return purged, more, nil
}

// purgeMoving finishes a replay to another partition. Where the group is gone there it can't arrive any more, and is purged.
func (s *Store) purgeMoving(ctx context.Context, ref queue.Ref, group, id string) (int64, error) {
	_, stuck, err := s.finishMoves(ctx, ref, group, []any{id})
	if err != nil || stuck == 0 {
		return 0, err
	}
	purged, _, _, _, err := s.purge(ctx, ref, "-", 1, group, true, []any{id}) //nolint:dogsled // the rest is about pages
	return purged, err
}

func (s *Store) purge(
	ctx context.Context, ref queue.Ref, start string, n int, group string, all bool, ids []any,
) (purged int64, last queue.EntryID, more bool, moving []string, err error) {
	keys := []string{s.keys.meta(ref), s.keys.deadLetters(ref), s.keys.moving(ref)}
	reply, err := s.write(ctx, lookPurge, keys, append([]any{ref.UID, start, n, group, flag(all)}, ids...)...)
	if err != nil {
		return 0, queue.EntryID{}, false, nil, fmt.Errorf("purge dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	r := readReply(reply)
	purged, last, more = r.number(), r.id(), r.number() == 1
	for r.more() {
		moving = append(moving, r.text())
	}
	if r.err != nil {
		return 0, queue.EntryID{}, false, nil, fmt.Errorf("purge dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, r.err)
	}
	return purged, last, more, moving, nil
}

// partitionArg reads a partition that a script answered.
func partitionArg(text string) (int, error) {
	p, err := strconv.Atoi(text)
	if err != nil || p < 0 || p >= queue.MaxPartitions {
		return 0, fmt.Errorf("%q is no partition", text)
	}
	return p, nil
}
