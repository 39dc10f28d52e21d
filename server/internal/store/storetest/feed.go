package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

var feedContracts = []contract{
	{"FeedReturnsExistingEntries", feedBefore},
	{"FeedReturnsEntriesInStorageOrder", feedOrder},
	{"FeedReturnsOneShardOnly", feedShard},
	{"FeedWaitsForEntries", feedWaits},
	{"FeedEndsWithItsContext", feedContext},
	{"FeedRepeatsUnpublishedEntries", feedUnpublished},
	{"FeedContinuesAfterPublishedEntries", feedPublished},
	{"FeedEndsWithTheStore", feedStoreClosed},
	{"TwoFeedsMissNothing", feedTwo},
}

// follower reads one feed and verifies that no channel skips an entry.
type follower struct {
	message.Feed
	// start holds, by channel, the highest seq that the feed may skip. seen holds the highest seq
	// that it has returned.
	start map[string]int64
	seen  map[string]int64
	// first holds the entries in the order of their first delivery.
	first []message.Entry
	// got counts all entries, including repeats.
	got int
}

// follow opens a feed that may skip at most the entries up to the seqs in published.
func follow(t tester, p *fixture, shard int, published map[string]int64) *follower {
	t.Helper()
	f, err := p.OpenFeed(t.Context(), shard)
	if err != nil {
		t.Fatalf("open feed: %v", err)
	}
	return &follower{Feed: f, start: published, seen: map[string]int64{}}
}

// next reads one batch.
func (f *follower) next(ctx context.Context, most int) error {
	entries, err := f.Next(ctx, most)
	if err != nil {
		return err
	}
	if len(entries) == 0 || len(entries) > most {
		return fmt.Errorf("next returned %d entries, want 1 to %d", len(entries), most)
	}
	f.got += len(entries)
	for _, e := range entries {
		last, ok := f.seen[e.ChannelID]
		if !ok {
			last = f.start[e.ChannelID]
		}
		if e.Seq > last+1 {
			return fmt.Errorf("channel %s skipped from %d to %d", e.ChannelID, last, e.Seq)
		}
		if e.Seq == last+1 {
			f.first = append(f.first, e)
		}
		f.seen[e.ChannelID] = max(last, e.Seq)
	}
	return nil
}

// until reads until the feed has returned every channel up to the channel's seq in seqs.
func (f *follower) until(t tester, seqs map[string]int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !f.reached(seqs) {
		if err := f.next(ctx, 7); err != nil {
			t.Fatalf("next: %v (seen %v, want %v)", err, f.seen, seqs)
		}
	}
}

func (f *follower) reached(seqs map[string]int64) bool {
	for channel, seq := range seqs {
		if f.seen[channel] < seq {
			return false
		}
	}
	return true
}

// published confirms what was read.
func (f *follower) published(t tester) {
	t.Helper()
	if err := f.Published(t.Context()); err != nil {
		t.Fatalf("published: %v", err)
	}
}

// close closes the feed.
func (f *follower) close(t tester) {
	t.Helper()
	if err := f.Close(t.Context()); err != nil {
		t.Fatalf("close feed: %v", err)
	}
}

// ends returns the last seq of each draft by channel.
func ends(drafts ...*draft) map[string]int64 {
	seqs := map[string]int64{}
	for _, d := range drafts {
		seqs[d.channel] = d.seq
	}
	return seqs
}

func feedBefore(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	log := d.sends(50)
	edit := d.edit(&log[0], "edited")
	log = append(log, edit)
	p.insert(t, log...)
	f := follow(t, p, 1, nil)
	f.until(t, ends(d))
	equal(t, "feed", log, f.first)
	f.close(t)
	// Nothing was published, so a reopened feed starts at the beginning.
	p.reopen(t)
	f = follow(t, p, 1, nil)
	f.until(t, ends(d))
	equal(t, "feed after a restart", log, f.first)
	f.close(t)
}

func feedOrder(t *testing.T, p *fixture) {
	drafts := draftsOf(0, 5)
	var want []message.Entry
	f := follow(t, p, 0, nil)
	for i := range 30 {
		var batch []message.Entry
		for j := range 1 + i%4 {
			batch = append(batch, drafts[(i*3+j*2)%5].send("text"))
		}
		p.insert(t, batch...)
		want = append(want, batch...)
		if i == 15 {
			f.until(t, ends(drafts...))
		}
	}
	f.until(t, ends(drafts...))
	equal(t, "a feed from before", want, f.first)
	f.close(t)
	f = follow(t, p, 0, nil)
	f.until(t, ends(drafts...))
	equal(t, "a feed from after", want, f.first)
	f.close(t)
}

func feedShard(t *testing.T, p *fixture) {
	var drafts []*draft
	for b := range shards {
		drafts = append(drafts, draftsOf(b, 1)[0])
	}
	for range 3 {
		for _, d := range drafts {
			p.insert(t, d.sends(4)...)
		}
	}
	for b, d := range drafts {
		f := follow(t, p, b, nil)
		f.until(t, ends(d))
		if len(f.seen) != 1 {
			t.Fatalf("feed %d yields channels %v, want %s alone", b, f.seen, d.channel)
		}
		f.published(t)
		f.close(t)
	}
}

func feedWaits(t *testing.T, p *fixture) {
	d := draftsOf(3, 1)[0]
	f := follow(t, p, 3, nil)
	defer f.close(t)
	for range 20 {
		started, done := make(chan struct{}), make(chan error, 1)
		go func() {
			close(started)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for want := d.seq + 1; f.seen[d.channel] < want; {
				if err := f.next(ctx, 10); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		<-started
		// Change the draft only after the reader has compared its seq or returned an error.
		e := *d
		p.insert(t, e.send("wake up"))
		if err := <-done; err != nil {
			t.Fatalf("next: %v", err)
		}
		*d = e
	}
}

func feedContext(t *testing.T, p *fixture) {
	d := draftsOf(2, 1)[0]
	f := follow(t, p, 2, nil)
	defer f.close(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		began := time.Now()
		if err := f.next(ctx, 10); err == nil {
			t.Fatal("next returned entries of an empty shard")
		}
		cancel()
		if took := time.Since(began); took > patience/3 {
			t.Fatalf("next took %s to end after its context", took)
		}
		// A Next whose context ended has lost no entry.
		log := d.sends(3)
		p.insert(t, log...)
		f.until(t, ends(d))
		equal(t, "feed", log, f.first[len(f.first)-3:])
		f.published(t)
	}
}

func feedUnpublished(t *testing.T, p *fixture) {
	drafts := draftsOf(1, 3)
	insert := func(n int) {
		for _, d := range drafts {
			p.insert(t, d.sends(n)...)
		}
	}
	insert(10)
	f := follow(t, p, 1, nil)
	f.until(t, ends(drafts...))
	f.published(t)
	published := ends(drafts...)
	insert(5)
	f.until(t, ends(drafts...))
	// The second batch was returned but not confirmed.
	f.close(t)
	again := follow(t, p, 1, published)
	again.until(t, ends(drafts...))
	again.close(t)
	p.reopen(t)
	again = follow(t, p, 1, published)
	insert(1)
	again.until(t, ends(drafts...))
	again.close(t)
}

func feedPublished(t *testing.T, p *fixture) {
	d := draftsOf(0, 2)
	f := follow(t, p, 0, nil)
	for range 10 {
		p.insert(t, d[0].sends(20)...)
		f.until(t, ends(d[0]))
		f.published(t)
	}
	published := ends(d[0])
	for _, restart := range []bool{false, true} {
		f.close(t)
		if restart {
			p.reopen(t)
		}
		p.insert(t, d[0].send("next"), d[1].send("the other's first"))
		f = follow(t, p, 0, published)
		f.until(t, ends(d...))
		// Repeats are allowed, but a feed that forgets what was published would never finish.
		if f.got > 102 {
			t.Fatalf("%d entries came after 200 were published and 2 more stored", f.got)
		}
		f.published(t)
		published = ends(d...)
	}
	f.close(t)
}

func feedStoreClosed(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	p.insert(t, d.sends(3)...)
	f := follow(t, p, 0, nil)
	f.until(t, ends(d))
	f.published(t)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			// Published entries may be returned again.
			if err := f.next(ctx, 10); err != nil {
				done <- err
				return
			}
		}
	}()
	p.reopen(t)
	select {
	case <-done:
	case <-time.After(patience / 2):
		t.Fatal("next goes on after the store was closed")
	}
	p.insert(t, d.send("next"))
	again := follow(t, p, 0, map[string]int64{d.channel: 3})
	again.until(t, ends(d))
	again.close(t)
}

func feedTwo(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	one, two := follow(t, p, 1, nil), follow(t, p, 1, nil)
	for range 5 {
		p.insert(t, slices.Concat(d[0].sends(3), d[1].sends(2))...)
		one.until(t, ends(d...))
		one.published(t)
	}
	// The second feed may skip what the first one published, but nothing else.
	p.insert(t, d[0].send("unpublished"))
	two.start = map[string]int64{d[0].channel: 15, d[1].channel: 10}
	two.until(t, ends(d[0]))
	one.close(t)
	two.close(t)
	three := follow(t, p, 1, two.start)
	three.until(t, ends(d[0]))
	three.close(t)
}
