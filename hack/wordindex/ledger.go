package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// settling is how long before its death a worker may have finished a job whose settlement is lost
// with it.
const settling = 2 * time.Second

// delivery is one call of a handler, as examples/wordindex recorded it.
type delivery struct {
	message string
	attempt int
	// run is the worker's name and process id.
	run   string
	began time.Time
	// ended is the zero time if the handler has not returned. failed: it returned an error.
	ended  time.Time
	failed bool
}

// ledger is all deliveries, by message, in the order in which they began.
type ledger map[string][]*delivery

// ledger reads what the workers recorded.
func (e *ending) ledger(ctx context.Context) (ledger, error) {
	client := e.index.Client()
	defer client.Close()
	entries, err := client.LRange(ctx, "wordindex:{"+topic+":"+group+"}:deliveries", 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return parseLedger(entries)
}

func parseLedger(entries []string) (ledger, error) {
	l := make(ledger)
	for _, entry := range entries {
		var what string
		var ms int64
		var d delivery
		if _, err := fmt.Sscan(entry, &what, &ms, &d.run, &d.message, &d.attempt); err != nil {
			return nil, fmt.Errorf("the record %q: %w", entry, err)
		}
		at := time.UnixMilli(ms)
		if what == "begin" {
			d.began = at
			l[d.message] = append(l[d.message], &d)
			continue
		}
		for _, began := range slices.Backward(l[d.message]) {
			if began.run == d.run && began.attempt == d.attempt && began.ended.IsZero() {
				began.ended, began.failed = at, what == "failed"
				break
			}
		}
	}
	return l, nil
}

// open returns for each worker that works on something its run.
func (l ledger) open() map[string]string {
	open := make(map[string]string)
	for _, all := range l {
		for _, d := range all {
			if d.ended.IsZero() {
				name, _, _ := strings.Cut(d.run, "/")
				open[name] = d.run
			}
		}
	}
	return open
}

// judge checks all deliveries.
func (e *ending) judge(ctx context.Context) error {
	l, err := e.ledger(ctx)
	if err != nil {
		return err
	}
	e.Add("jobs begun", len(l))
	if n := e.jobs - len(l); n != 0 {
		e.Wrongf("%d jobs were never begun, of %d", n, e.jobs)
	}
	for _, story := range l.judge(e) {
		e.sayf("wrong: %s", story)
	}
	return nil
}

// stories is how many wrong messages are printed.
const stories = 20

// story returns all deliveries of a message as text.
func story(all []*delivery) string {
	var text strings.Builder
	text.WriteString(all[0].message)
	for _, d := range all {
		fmt.Fprintf(&text, "; attempt %d by %s from %s", d.attempt, d.run, d.began.Format(clock))
		switch {
		case d.ended.IsZero():
			text.WriteString(" without an end")
		case d.failed:
			text.WriteString(" to its failure at " + d.ended.Format(clock))
		default:
			text.WriteString(" to " + d.ended.Format(clock))
		}
	}
	return text.String()
}

const clock = "15:04:05.000"

// judge records deliveries that should not have been: more than one of a message, unless a killed
// worker had the earlier one in flight, and attempts that count more deliveries than began. It
// returns the stories of the first such messages.
func (l ledger) judge(e *ending) (wrong []string) {
	again, charged := make(map[string]int), 0
	for _, all := range l {
		excused, right := 0, true
		for i, d := range all {
			if i > excused {
				again[e.during(d.began)]++
				right = false
			}
			if died, ok := e.killed[d.run]; ok && (d.ended.IsZero() || died.Sub(d.ended) < settling) {
				excused++
				e.Add("jobs in flight on a killed worker", 1)
			}
		}
		e.Add("deliveries", len(all))
		if all[len(all)-1].attempt > len(all) {
			charged++
			right = false
		}
		if !right && len(wrong) < stories {
			wrong = append(wrong, story(all))
		}
	}
	if len(again) > 0 {
		var when []string
		total := 0
		for _, name := range slices.Sorted(maps.Keys(again)) {
			total += again[name]
			when = append(when, fmt.Sprintf("%d during %s", again[name], name))
		}
		e.Wrongf("%d deliveries were further ones of jobs that no killed worker had in flight (%s)", total, strings.Join(when, ", "))
	}
	if charged > 0 {
		e.Wrongf("%d jobs were charged an attempt that no handler began", charged)
	}
	return wrong
}

// during names the fault that was going on, or the last one before.
func (e *ending) during(at time.Time) string {
	name := "the start"
	for _, p := range e.phases {
		if p.began.After(at) {
			break
		}
		if p.name != calm {
			name = p.name
		} else if !strings.HasPrefix(name, "the time after ") {
			name = "the time after " + name
		}
	}
	return name
}
