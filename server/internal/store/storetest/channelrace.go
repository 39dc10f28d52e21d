package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/channel"
)

var channelRaceContracts = []channelContract{
	{"CreateAgainstEnsure", createRace},
	{"MembersChangeWhileTheFeedAdvances", rosterRace},
	{"AdvancesOfTwoFeeds", advanceRace},
}

// createRace tests that of several concurrent Creates of one channel exactly one succeeds, and that
// all callers see the channel that it created.
func createRace(t *testing.T, c *channels) {
	const makers = 3
	for round := range 8 {
		id := fmt.Sprintf("room%d", round)
		var g errgroup.Group
		var won [makers]bool
		rows := make([]channel.Row, 4)
		for i := range makers {
			g.Go(func() error {
				name := fmt.Sprintf("maker%d", i)
				row := channel.Row{ChannelID: id, MembersOnly: true, CreatedBy: name, CreatedAt: at(int64(i))}
				_, err := c.Create(t.Context(), row, []string{name, "friend of " + name})
				if won[i] = err == nil; won[i] || errors.Is(err, channel.ErrExists) {
					return nil
				}
				return err
			})
		}
		for i := range rows {
			g.Go(func() (err error) {
				switch i {
				case 0:
					_, _, err = c.MarkRead(t.Context(), id, "passer-by", channel.Cursor{Seq: 1, Count: 1}, true, at(50))
				case 1:
					err = c.Advance(t.Context(), []channel.Advance{sent(id, "passer-by", 1)}, at(50))
				default:
					_, err = c.Ensure(t.Context(), id, at(50))
				}
				if err == nil {
					rows[i], err = c.Ensure(t.Context(), id, at(60))
				}
				return err
			})
		}
		must(t, g.Wait())
		row := c.row(t, id)
		for _, seen := range rows {
			seen.Numbers = row.Numbers
			same(t, "row", row, seen)
		}
		winner := ""
		for i := range makers {
			name := fmt.Sprintf("maker%d", i)
			if won[i] {
				if winner != "" {
					t.Fatalf("%s and %s both made %s", winner, name, id)
				}
				winner = name
				c.wantMember(t, channel.Member{ChannelID: id, UserID: name, Role: channel.Owner, JoinedAt: at(int64(i))})
				c.wantMember(t, channel.Member{ChannelID: id, UserID: "friend of " + name, JoinedAt: at(int64(i))})
				continue
			}
			c.wantNone(t, id, name)
			c.wantNone(t, id, "friend of "+name)
		}
		if row.CreatedBy != winner || row.MembersOnly != (winner != "") {
			t.Fatalf("%q made it: %+v", winner, row)
		}
		if _, ok := c.member(t, id, "passer-by"); ok == row.MembersOnly {
			t.Fatalf("the passer-by is a member: %v; %+v", ok, row)
		}
	}
}

// rosterRace tests that Advance over users' earlier messages neither makes removed users members
// nor ends a membership, while other goroutines remove and add the users, each user in turn.
func rosterRace(t *testing.T, c *channels) {
	const users, rounds, heads = 5, 12, 40
	c.ensure(t, "lobby", 1)
	c.create(t, "club")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var hands, feed errgroup.Group
	feed.Go(func() error {
		for seq := int64(1); ; seq = seq%heads + 1 { // starts over, for repeats
			var moves []channel.Advance
			for _, id := range []string{"lobby", "club"} {
				move := sent(id, fmt.Sprintf("user%d", seq%users), seq)
				moves = append(moves, move)
			}
			if err := c.Advance(context.WithoutCancel(ctx), moves, at(10)); err != nil {
				return err
			}
			if ctx.Err() != nil && seq == heads {
				return nil
			}
		}
	})
	for u := range users {
		hands.Go(func() error {
			for _, id := range []string{"lobby", "club"} {
				if err := c.comeAndGo(t.Context(), id, fmt.Sprintf("user%d", u), rounds, heads); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, hands.Wait())
	cancel()
	must(t, feed.Wait())
	for _, id := range []string{"lobby", "club"} {
		if got := c.row(t, id).Numbers; got != (channel.Numbers{Head: heads, Count: heads, LastMessage: heads}) {
			t.Fatalf("%s: %+v", id, got)
		}
		for u := range users {
			if m, ok := c.member(t, id, fmt.Sprintf("user%d", u)); !ok || !m.JoinedAt.Equal(at(100+rounds-1)) {
				t.Fatalf("user%d of %s: %+v, %v", u, id, m, ok)
			}
		}
	}
}

// comeAndGo removes and re-adds a user repeatedly, and checks the result of each step.
func (c *channels) comeAndGo(ctx context.Context, id, userID string, rounds int, left int64) error {
	var last channel.Cursor
	for n := range rounds {
		if err := c.RemoveMembers(ctx, id, []string{userID}, left); err != nil {
			return err
		}
		if of, err := c.MembersOf(ctx, userID, []string{id}); err != nil || len(of) > 0 {
			return fmt.Errorf("%s was removed: %v, %w", userID, of, err)
		}
		joined := at(int64(100 + n))
		if err := c.AddMembers(ctx, id, []string{userID}, joined); err != nil {
			return err
		}
		to := channel.Cursor{Seq: int64(n), Count: int64(n)}
		cursor, ok, err := c.MarkRead(ctx, id, userID, to, n%2 == 0, joined.Add(time.Hour))
		if err != nil || !ok || cursor.Seq < to.Seq || cursor.Seq < last.Seq || cursor.Count != cursor.Seq {
			return fmt.Errorf("%s marks %+v after %+v: %+v, %v, %w", userID, to, last, cursor, ok, err)
		}
		of, err := c.MembersOf(ctx, userID, []string{id})
		if err != nil {
			return err
		}
		m, ok := of[id]
		if !ok || !m.JoinedAt.Equal(joined) || m.Seq < cursor.Seq || m.Count != m.Seq {
			return fmt.Errorf("%s was added at %s and has read %+v: %+v, %v", userID, joined, cursor, m, ok)
		}
		last = m.Cursor
	}
	return nil
}

// advanceRace tests that, while two goroutines advance the same channel, a reader never sees its
// numbers go back, nor a last message that its own sender's read cursor has not reached.
func advanceRace(t *testing.T, c *channels) {
	const heads = 60
	c.ensure(t, "lobby", 1)
	var feeds, reader errgroup.Group
	for range 2 {
		feeds.Go(func() error {
			for seq := int64(1); seq <= heads; seq += 3 {
				move := channel.Advance{ChannelID: "lobby", Numbers: channel.Numbers{Head: seq + 2, Count: 10 * (seq + 2), LastMessage: seq + 1}}
				move.Senders = map[string]channel.Cursor{"ann": {Seq: seq, Count: 10 * seq}, "bob": {Seq: seq + 1, Count: 10 * (seq + 1)}}
				if err := c.Advance(t.Context(), []channel.Advance{move}, at(5)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	reader.Go(func() error {
		var seen channel.Numbers
		for seen.Head < heads {
			row, err := c.Ensure(t.Context(), "lobby", at(9))
			if err != nil {
				return err
			}
			of, err := c.MembersOf(t.Context(), "bob", []string{"lobby"})
			if err != nil {
				return err
			}
			if row.Head < seen.Head || row.LastMessage < seen.LastMessage || row.Count != 10*row.Head {
				return fmt.Errorf("%+v after %+v", row.Numbers, seen)
			}
			if bob := of["lobby"].Cursor; bob.Seq < row.LastMessage || bob.Count != 10*bob.Seq {
				return fmt.Errorf("bob sent %d and has read %+v", row.LastMessage, bob)
			}
			seen = row.Numbers
		}
		return nil
	})
	must(t, feeds.Wait())
	must(t, reader.Wait())
}
