package redisqueue

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// model knows what a group must be given, whatever happens to it.
type model struct {
	*workbench

	random *rand.Rand
	// made counts messages: each one's payload is its number.
	made int
	// mark is the holder's.
	mark int64
	// keyOf is each message's key; order has each key's messages that were never delivered, in order.
	keyOf map[string]string
	order map[string][]string
	// attempts counts each message's deliveries since it was made or replayed; held is what the holder has.
	attempts map[string]int
	held     map[string]queue.Entry
	// unsettled is the one message of each key that was delivered and is not settled, in strict order.
	unsettled map[string]string
	ended     map[string]queue.Verdict
}

func newModel(b *workbench, seed uint64) *model {
	return &model{
		workbench: b, random: rand.New(rand.NewPCG(seed, 1)),
		keyOf: map[string]string{}, order: map[string][]string{}, attempts: map[string]int{}, held: map[string]queue.Entry{},
		unsettled: map[string]string{}, ended: map[string]queue.Verdict{},
	}
}

// sure repeats a call until its outcome is known.
func (m *model) sure(call func() error) {
	m.t.Helper()
	for range 100 {
		err := call()
		if !errors.Is(err, queue.ErrUnknownOutcome) {
			if err != nil {
				m.t.Fatal(err)
			}
			return
		}
	}
	m.t.Fatal("no outcome is ever known")
}

func (m *model) produceSome() {
	m.t.Helper()
	drafts := make([]queue.Draft, 1+m.random.IntN(6))
	for i := range drafts {
		m.made++
		key := []string{"", "a", "b", "b\x00", "b\x000"}[m.random.IntN(5)]
		drafts[i] = queue.Draft{
			Message:        queue.Message{Key: key, Payload: fmt.Append(nil, m.made)},
			IdempotencyKey: fmt.Sprint("i", m.made),
		}
	}
	var taken []queue.Taken
	m.sure(func() (err error) {
		taken, err = m.Produce(m.t.Context(), m.topic, 0, drafts)
		return err
	})
	for i := range taken {
		id, key := taken[i].MessageID, drafts[i].Key
		m.keyOf[id] = key
		m.order[key] = append(m.order[key], id)
	}
}

// deliver checks what a fetch or claim gave.
func (m *model) deliver(entries []queue.Entry) {
	m.t.Helper()
	for _, e := range entries {
		id, key := e.MessageID, m.keyOf[e.MessageID]
		if _, known := m.keyOf[id]; !known || e.Key != key {
			m.t.Fatalf("delivered %+v, which nobody produced so", e)
		}
		if _, ok := m.ended[id]; ok {
			m.t.Fatalf("delivered %s, which was settled", id)
		}
		if _, ok := m.held[id]; !ok {
			m.attempts[id]++
		}
		if e.Attempt != m.attempts[id] {
			m.t.Fatalf("%s is attempt %d, want %d", id, e.Attempt, m.attempts[id])
		}
		m.held[id] = e
		at := slices.Index(m.order[key], id)
		if m.topic.StrictOrder && key != "" {
			if other := m.unsettled[key]; other != "" && other != id {
				m.t.Fatalf("key %q: %s was delivered while %s is not settled", key, id, other)
			}
			m.unsettled[key] = id
			if at > 0 {
				m.t.Fatalf("key %q: %s was delivered before %s", key, id, m.order[key][0])
			}
		}
		if at >= 0 {
			m.order[key] = slices.Delete(m.order[key], at, at+1)
		}
	}
}

func (m *model) fetchSome() {
	m.t.Helper()
	entries, looked, err := m.Fetch(m.t.Context(), m.topic, m.lease, m.mark, 1+m.random.IntN(8))
	m.mark += int64(looked)
	switch {
	case errors.Is(err, queue.ErrUnknownOutcome):
		m.claimAll()
	case err != nil:
		m.t.Fatal(err)
	case looked < len(entries) || looked > len(entries) && !m.topic.StrictOrder:
		m.t.Fatalf("looked at %d and gave %d", looked, len(entries))
	default:
		m.deliver(entries)
	}
}

func (m *model) claimAll() {
	m.t.Helper()
	for _, place := range []queue.Place{queue.Main, queue.Retries} {
		for after, more := (queue.EntryID{}), true; more; {
			m.sure(func() error {
				page, err := m.Claim(m.t.Context(), m.lease, place, after, 3)
				if err != nil {
					return err
				}
				m.mark = page.Mark
				if !slices.IsSortedFunc(page.Entries, func(a, b queue.Entry) int { return a.ID.Compare(b.ID) }) {
					m.t.Fatalf("claimed out of order: %+v", page.Entries)
				}
				m.deliver(page.Entries)
				after, more = page.Next, page.More
				return nil
			})
		}
	}
}

func (m *model) settleSome(verdicts ...queue.Verdict) {
	m.t.Helper()
	var settlements []queue.Settlement
	ids := slices.Sorted(maps.Keys(m.held))
	m.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:m.random.IntN(len(ids)+1)] {
		v := verdicts[m.random.IntN(len(verdicts))]
		e := m.held[id]
		e.Payload = nil
		settlements = append(settlements, queue.Settlement{Entry: e, Verdict: v, Delay: time.Duration(m.random.IntN(3)) * time.Millisecond})
		delete(m.held, id)
		switch v {
		case queue.Ack, queue.Dead:
			m.ended[id] = v
			delete(m.unsettled, m.keyOf[id])
		case queue.Release:
			m.attempts[id]--
		case queue.Retry:
		}
	}
	m.sure(func() error { return m.Settle(m.t.Context(), m.topic, m.lease, settlements) })
	// Whoever repeats it although it is known does no harm.
	m.sure(func() error { return m.Settle(m.t.Context(), m.topic, m.lease, settlements) })
}

func (m *model) replaySome() {
	m.t.Helper()
	letters, _, _, err := m.DeadLetters(m.t.Context(), m.topic.Ref(0), "", queue.EntryID{}, 3)
	if err != nil {
		if errors.Is(err, queue.ErrUnknownOutcome) {
			m.t.Fatal(err)
		}
		return
	}
	var ids []queue.EntryID
	for i := range letters {
		_, text, _ := strings.Cut(letters[i].ID, "-")
		id, err := queue.ParseEntryID(text)
		if err != nil {
			m.t.Fatal(err)
		}
		ids = append(ids, id)
		delete(m.ended, letters[i].MessageID)
		m.attempts[letters[i].MessageID] = 0
	}
	if len(ids) > 0 {
		m.sure(func() error {
			_, _, err := m.Replay(m.t.Context(), m.topic, 0, 0, "", ids, 0)
			return err
		})
	}
}

func (m *model) dueSome() {
	m.t.Helper()
	m.sure(func() error {
		_, _, err := m.Due(m.t.Context(), queue.Line{Ref: m.topic.Ref(0), Group: "g"}, 5)
		return err
	})
}

func (m *model) takeOver() {
	m.t.Helper()
	m.sure(func() error { return m.Free(m.t.Context(), m.lease) })
	holder := fmt.Sprint("s", m.random.IntN(1000))
	m.sure(func() error {
		lease, err := m.Acquire(m.t.Context(), m.topic.Ref(0), "g", holder, ttl)
		if err == nil {
			m.lease = lease
		}
		return err
	})
	clear(m.held)
	m.claimAll()
}

// count reads the counts; balance fails the test if they don't add up.
func (m *model) count() queue.GroupStats {
	m.t.Helper()
	for {
		p, err := m.Stats(m.t.Context(), m.topic, 0)
		if err == nil {
			if err := balance(p, p.Groups[0]); err != nil {
				m.t.Fatal(err)
			}
			return p.Groups[0]
		}
	}
}

func (m *model) run(steps int) {
	m.t.Helper()
	for range steps {
		switch m.random.IntN(12) {
		case 0, 1:
			m.produceSome()
		case 2, 3, 4:
			m.fetchSome()
		case 5, 6, 7:
			m.settleSome(queue.Ack, queue.Ack, queue.Retry, queue.Dead, queue.Release)
		case 8:
			m.replaySome()
		case 9:
			m.takeOver()
		case 10:
			m.dueSome()
		case 11:
			m.claimAll()
		}
		m.count()
	}
	testkit.Eventually(m.t, 20*time.Second, func() error {
		m.dueSome()
		m.fetchSome()
		m.claimAll()
		m.settleSome(queue.Ack)
		if s := m.count(); s.Acked+s.Dead-s.Replayed != int64(m.made) {
			return fmt.Errorf("of %d messages: %+v", m.made, s)
		}
		return nil
	})
	if len(m.ended) != m.made {
		m.t.Errorf("%d messages were made, %d settled", m.made, len(m.ended))
	}
	for name, key := range map[string]string{
		"keys": m.keys.unsettled(m.topic.Ref(0), "g"), "parked": m.keys.parked(m.topic.Ref(0), "g"),
		"items": m.keys.parkedData(m.topic.Ref(0), "g"), "retrying": m.keys.retryingData(m.topic.Ref(0), "g"),
	} {
		if n, err := m.client.Exists(m.t.Context(), key).Result(); err == nil && n > 0 {
			m.t.Errorf("%s are left", name)
		}
	}
}

// TestModel does at random what consumers do, and compares with what must come of it: every message is somewhere, once, after
// every step; each delivery is the attempt that it must be; and in strict order no message of a key is delivered while an
// earlier one is not settled. A lossy run loses replies all the while, and repeats.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, change := range map[string]func(*queue.Topic){"any order": nil, "strict order": strict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
				newModel(newWorkbench(t, client, change), seed).run(150)
			})
			t.Run("lossy", func(t *testing.T) {
				t.Parallel()
				server := testkit.Redis(t)
				proxy := testkit.NewProxy(t, "unix", server.Addr())
				client := redis.NewClient(&redis.Options{Network: "unix", Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
				t.Cleanup(func() { _ = client.Close() })
				b := newWorkbench(t, client, change)
				proxy.LoseReplies(7, nil)
				newModel(b, seed).run(150)
				if proxy.Lost() == 0 {
					t.Error("no reply was lost")
				}
			})
		})
	}
}
