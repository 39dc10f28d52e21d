package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/message"
)

var rangeContracts = []contract{
	{"EntriesOfARange", entriesRange},
	{"EntriesEndAfterMaxBytes", entriesMaxBytes},
	{"EntriesOfEdited", entriesOfEdited},
}

// pick returns what Entries must return of a whole log. It spells out the contract.
func pick(log []message.Entry, r message.Range) []message.Entry {
	var picked []message.Entry
	log = slices.Clone(log)
	if r.Desc {
		slices.Reverse(log)
	}
	sum := 0
	for _, e := range log {
		if e.Seq <= r.After || (r.Before != 0 && e.Seq >= r.Before) || (r.MessagesOnly && e.Kind != message.KindSend) {
			continue
		}
		if r.HeadersOnly {
			e.Content, e.Metadata = "", nil
		}
		picked = append(picked, e)
		sum += e.Size()
		if len(picked) == r.Limit || (r.MaxBytes != 0 && sum > r.MaxBytes) {
			break
		}
	}
	return picked
}

// wantRange fails the test unless the range of a settled log is what pick returns.
func wantRange(t tester, p *fixture, log []message.Entry, r message.Range) {
	t.Helper()
	equal(t, fmt.Sprintf("entries %+v", r), pick(log, r), p.settled(t, log[0].ChannelID, r))
}

func entriesRange(t *testing.T, p *fixture) {
	d := draftsOf(1, 3)
	log := d[1].sends(300)
	// Neighbours on both sides reveal a range that exceeds its channel.
	p.insert(t, d[0].sends(3)...)
	p.insert(t, log...)
	p.insert(t, d[2].sends(3)...)
	p.settle(t, d[1].channel)
	for _, desc := range []bool{false, true} {
		for _, after := range []int64{0, 1, 255, 256, 299, 300, 1000} {
			for _, before := range []int64{0, 1, 2, 256, 257, 300, 301, 1 << 40} {
				for _, limit := range []int{1, 1000} {
					wantRange(t, p, log, message.Range{After: after, Before: before, Desc: desc, Limit: limit})
				}
			}
		}
	}
}

func entriesMaxBytes(t *testing.T, p *fixture) {
	d := draftsOf(2, 1)[0]
	var log []message.Entry
	for _, n := range []int{10, 0, 20, 30, 0, 5, 100} {
		e := d.send(strings.Repeat("x", n))
		if e.Metadata = nil; n == 30 { // metadata counts
			e.Content, e.Metadata = e.Content[:10], map[string]string{"key": strings.Repeat("v", 17)}
		}
		log = append(log, e)
	}
	p.insert(t, log...)
	p.settle(t, d.channel)
	for _, desc := range []bool{false, true} {
		for _, most := range []int{1, 9, 10, 11, 29, 30, 31, 60, 64, 65, 99, 100, 1000} {
			for _, limit := range []int{2, 100} {
				wantRange(t, p, log, message.Range{Desc: desc, Limit: limit, MaxBytes: most})
				wantRange(t, p, log, message.Range{After: 2, Before: 7, Desc: desc, Limit: limit, MaxBytes: most})
			}
		}
	}
}

func entriesOfEdited(t *testing.T, p *fixture) {
	d := draftsOf(3, 1)[0]
	log := d.sends(5)
	for i := range 40 {
		switch e := &log[i%5]; {
		case i%7 == 6:
			log = append(log, d.send("another"))
		case i < 39:
			log = append(log, d.edit(e, strings.Repeat("long edit ", 20)))
		}
	}
	p.insert(t, log...)
	p.settle(t, d.channel)
	for _, desc := range []bool{false, true} {
		for _, r := range []message.Range{
			{Limit: 100},
			{Limit: 3},
			{Limit: 8, After: 4, Before: 30},
			{Limit: 100, After: 7, MaxBytes: 10},
			{Limit: 100, After: 12, Before: 18},
		} {
			r.Desc = desc
			wantRange(t, p, log, r)
			r.MessagesOnly = true
			wantRange(t, p, log, r)
			r.HeadersOnly = true
			wantRange(t, p, log, r)
		}
	}
}
