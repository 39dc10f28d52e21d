package messages

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

const (
	revocationDir = "server/internal/revocation"
	handlerFile   = "server/internal/rpc/handler.go"
)

// alone returns a step in which a node reaches no engine.
func alone(node int) chaos.Step {
	const hold = 8 * time.Second
	s := step(chaos.CutMongo, node, hold)
	for _, name := range []chaos.FaultName{chaos.CutRedis, chaos.CutNATS} {
		s.Faults = append(s.Faults, chaos.Planned{Name: name, Node: node, Hold: hold})
	}
	return s
}

// signingOut are mutants of sign-outs. Others, which show only at certain moments, are in
// hack/mutants.
var signingOut = []chaos.Mutant{
	{
		Name: "streams-not-refused", Heading: "signing out", Breaks: "streams are opened with revoked tokens",
		Edits: []chaos.Edit{{
			File: handlerFile,
			Old:  "		err = deps.Revocations.Check(r.Context(), p)\n",
			New: "		if path := r.URL.Path; !strings.HasSuffix(path, \"/Subscribe\") && !strings.HasSuffix(path, \"/Connect\") &&\n" +
				"			!strings.HasSuffix(path, \"Consume\") {\n			err = deps.Revocations.Check(r.Context(), p)\n		}\n",
		}, {
			File: handlerFile,
			Old:  "		if err := deps.Revocations.Check(ctx, p); err != nil {\n", New: "		if err := ctx.Err(); err != nil {\n",
		}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{RevokedAccepted},
	},
	{
		Name: "streams-not-ended", Heading: "signing out", Breaks: "live streams outlive their tokens",
		Edits: []chaos.Edit{{
			File: handlerFile,
			Old:  "		watch := deps.Revocations.Watch(p, cancel)\n", New: "		watch := deps.Revocations.Watch(p, func(error) {})\n",
		}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{RevokedAccepted},
	},
	{
		Name: "announced-only", Heading: "signing out", Breaks: "nodes know only the revocations that were announced to them",
		Edits: []chaos.Edit{{
			File: revocationDir + "/poll.go",
			Old:  "	l.apply(entries, true)\n	l.mu.Lock()\n	if later(next, l.stamp) {", New: "	l.mu.Lock()\n	if later(next, l.stamp) {",
		}, {
			File: revocationDir + "/poll.go",
			Old:  "l.silence() <= trust }", New: "l.silence() >= 0 }",
		}},
		Steps: []chaos.Step{alone(0), alone(1)},
		Shows: []chaos.Name{RevokedAccepted},
	},
	{
		Name: "polls-at-start-only", Heading: "signing out", Breaks: "nodes ask the store for revocations when they start, and Redis afterwards",
		Edits: []chaos.Edit{{
			File: revocationDir + "/poll.go",
			Old:  "wait = l.cfg.Interval - rand.N(l.cfg.Interval/10+1) {", New: "wait = time.Hour - rand.N(l.cfg.Interval/10+1) {",
		}},
		Steps: []chaos.Step{calm(3 * time.Second), step(chaos.RedisKill, 0, 16*time.Second)},
		Shows: []chaos.Name{RevocationUnknown},
	},
	{
		Name: "open-by-default", Heading: "signing out", Breaks: "`redis.fail_open` has the opposite effect",
		Edits: []chaos.Edit{{
			File: revocationDir + "/ask.go",
			Old:  "	if !l.cfg.FailOpen {\n", New: "	if l.cfg.FailOpen {\n",
		}},
		Steps: []chaos.Step{alone(0), alone(1)},
		Shows: []chaos.Name{RevokedAccepted},
	},
	{
		Name: "unknown-is-refused", Heading: "signing out", Breaks: "a node that cannot tell answers `unauthenticated`, so that clients forget their tokens",
		Edits: []chaos.Edit{{
			File: revocationDir + "/list.go",
			Old:  "fault.Wrap(cause, fault.Unavailable, fault.RevocationUnknown,", New: "fault.Wrap(cause, fault.Unauthenticated, fault.RevocationUnknown,",
		}},
		Steps: []chaos.Step{alone(0), alone(1)},
		Shows: []chaos.Name{UnrevokedRefused},
	},
}
