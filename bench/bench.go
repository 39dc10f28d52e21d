// Package bench measures a Parley server: it takes the figures that `parley bench` prints, each
// with its floor from the same run. A floor is the minimum cost of the same load, on a bare program
// that does nothing else.
//
// On a shared machine only two kinds of numbers are comparable: the ratio of a figure to its floor,
// which are measured alternately, and the server's CPU time per unit of work. The load runs in this
// process. Servers and floors run in processes of their own, so that their CPU time is separate.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Measure takes the figures of one area in Env.Options.Rounds rounds. It reports its progress to
// Env.Progress. When it returns, everything it started has ended, except for the server from
// Env.Target.
type Measure func(ctx context.Context, env *Env) ([]Figure, error)

// Area is a set of figures that are measured together.
type Area struct {
	// Name selects the area on the command line. Help describes it in one line.
	Name, Help string
	// Own is set if the area starts, kills or reconfigures servers. Such an area can't be measured
	// on a server that is already running.
	Own bool
	// Needs returns an error if the area can't be measured with these options. If Needs is nil, it
	// can be measured with any.
	Needs   func(o *Options) error
	Measure Measure
}

// Areas returns all areas in the order in which they are measured.
func Areas() []Area {
	return []Area{
		{Name: "fanout", Help: "One publisher to many subscribers, saturated and paced.", Measure: measureFanout},
		{Name: "idle", Help: "Memory of idle streams.", Own: true, Measure: measureIdle},
		{Name: "telemetry", Help: "Telemetry on against off.", Own: true, Measure: measureTelemetry},
		{Name: "reconnect", Help: "Kill -9 under many streams.", Own: true, Measure: measureReconnect},
		{Name: "sends", Help: "Durable sends, against the disk's own rate.", Measure: measureSends},
		{Name: "reads", Help: "Pages of messages from the cache, against a bare handler.", Measure: measureReads},
		{Name: "growth", Help: "The cost of deliveries and sends with ten times the channels and users.", Measure: measureGrowth},
		{Name: "sessions", Help: "Appends to sessions with Redis healthy, slow and stopped.", Own: true, Measure: measureSessions},
		{Name: "sessions-list", Help: "Lists of 200 messages of a session from the cache, against a bare LRANGE.", Measure: measureSessionLists},
		{Name: "sessions-deltas", Help: "Deltas of open messages to 1, 10 and many subscribers.", Measure: measureDeltas},
		{Name: "sessions-generations", Help: "How many generations the server holds.", Measure: measureGenerations},
		{Name: "presence", Help: "Reads and changes of presence, with ten times the users.", Own: true, Measure: measurePresence},
		{Name: "presence-memory", Help: "Memory of idle streams with presence, and of Redis.", Own: true, Measure: measurePresenceMemory},
		{Name: "presence-reconnect", Help: "Kill -9 under many streams with presence.", Own: true, Measure: measurePresenceReconnect},
		{Name: "queue", Help: "Messages through a queue, against raw Redis.", Own: true, Measure: measureQueue},
		{Name: "queue-latency", Help: "Messages one by one, and to an idle worker.", Own: true, Measure: measureQueueLatency},
		{Name: "queue-delay", Help: "Scheduled messages, from due to delivered.", Own: true, Measure: measureQueueDelay},
		{Name: "queue-growth", Help: "The cost of a message with ten times the topics.", Own: true, Measure: measureQueueGrowth},
		{Name: "queue-share", Help: "Many workers, a slow key, the crash of a worker.", Own: true, Measure: measureQueueShare},
		{Name: "queue-telemetry", Help: "Telemetry on against off, on queues.", Own: true, Measure: measureQueueTelemetry},
		{Name: "hot", Help: "Sends to one channel on MongoDB, against single inserts.", Needs: needsMongo, Measure: measureHot},
	}
}

// errNeedsOwn is the reason to skip an area with Own set.
var errNeedsOwn = errors.New("starts and stops its own servers; do not set --addr")

// ErrUnknownArea is the error of Select for a name that no area has.
var ErrUnknownArea = errors.New("there is no such area")

// Select returns the named areas in the order of areas; without names it returns all. A name also
// selects the areas whose names continue it after a hyphen: queue selects queue-latency and so on.
// It returns ErrUnknownArea for a name that selects none.
func Select(areas []Area, names []string) ([]Area, error) {
	for _, name := range names {
		if !slices.ContainsFunc(areas, func(a Area) bool { return a.within(name) }) {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknownArea)
		}
	}
	if len(names) == 0 {
		return areas, nil
	}
	return slices.DeleteFunc(slices.Clone(areas), func(a Area) bool { return !slices.ContainsFunc(names, a.within) }), nil
}

func (a Area) within(name string) bool { return a.Name == name || strings.HasPrefix(a.Name, name+"-") }

// Report receives the results of each area as soon as it is measured. A skipped area has a reason
// instead of figures.
type Report interface {
	Figures(area Area, figures []Figure) error
	Skipped(area Area, why error) error
}

// Run measures the areas one after another. It skips areas that can't be measured with these
// options. If an area fails, Run measures the others and then returns the error. It stops at once
// if ctx ends or report returns an error.
func Run(ctx context.Context, areas []Area, options Options, report Report) (err error) {
	env, err := newEnv(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.close()) }()
	var failed []error
	for _, area := range areas {
		if why := unfit(&area, &env.Options); why != nil {
			if err := report.Skipped(area, why); err != nil {
				return err
			}
			continue
		}
		env.area = area.Name
		figures, err := area.Measure(ctx, env)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", area.Name, err))
			continue
		}
		if err := report.Figures(area, figures); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func unfit(a *Area, o *Options) error {
	if a.Own && len(o.Addrs) > 0 {
		return errNeedsOwn
	}
	if a.Needs != nil {
		return a.Needs(o)
	}
	return nil
}

// Text reports for people. It writes a block of lines per figure to W, with the setup only if it
// differs from the previous figure's.
type Text struct {
	W io.Writer

	setup map[string]string
}

// Figures implements Report.
func (t *Text) Figures(_ Area, figures []Figure) error {
	for i := range figures {
		f := figures[i]
		same := maps.Equal(t.setup, f.Setup)
		if t.setup = f.Setup; same {
			f.Setup = nil
		}
		if _, err := io.WriteString(t.W, f.text()); err != nil {
			return err
		}
	}
	return nil
}

// Skipped implements Report.
func (t *Text) Skipped(area Area, why error) error {
	_, err := fmt.Fprintf(t.W, "%s: left out: %v\n\n", area.Name, why)
	return err
}
