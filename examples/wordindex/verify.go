package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type verifyCommand struct {
	Dir   string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs, as they were produced."`
	Fixed bool          `help:"Poison was replayed to fixed workers: it must be in the index, and no dead letters may remain."`
	Wait  time.Duration `default:"2m" help:"How long the witness may take to read the topic."`
}

// Run checks the counts, the dead letters, the index and the order, and returns the first
// violation.
func (c *verifyCommand) Run(a *app) error {
	jobs, err := a.readJobs(c.Dir)
	if err != nil {
		return err
	}
	j := newJudge(a, jobs, c.Fixed)
	if err := j.settled(); err != nil {
		return err
	}
	if err := j.deadLetters(); err != nil {
		return err
	}
	if err := j.once(); err != nil {
		return err
	}
	if err := j.index(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Wait)
	defer cancel()
	if err := j.runWitness(ctx); err != nil {
		return err
	}
	return j.order()
}

// judge compares the results of the jobs with those expected from the files.
type judge struct {
	*app

	jobs  map[string]*job
	nicks map[string][]*job
	// poison contains the jobs that fail unless fixed is true.
	poison map[string]*job
	fixed  bool

	indexed, seen *index
}

func newJudge(a *app, jobs []job, fixed bool) *judge {
	j := &judge{
		app: a, fixed: fixed, jobs: make(map[string]*job), nicks: make(map[string][]*job), poison: make(map[string]*job),
		indexed: newIndex(a.redis, a.flags.Topic, indexers), seen: newIndex(a.redis, a.flags.Topic, witness),
	}
	for i := range jobs {
		one := &jobs[i]
		j.jobs[one.line] = one
		j.nicks[one.nick] = append(j.nicks[one.nick], one)
		if one.fault == poison {
			j.poison[one.line] = one
		}
	}
	return j
}

// mustBeIndexed reports whether the job must be in the index: all but poison that has not been
// fixed.
func (j *judge) mustBeIndexed(one *job) bool { return j.fixed || one.fault != poison }

// groupStats returns the counts of the topic and of one group.
func (a *app) groupStats(ctx context.Context, group string) (*queue.TopicStats, *queue.GroupStats, error) {
	total, _, err := a.admin.Stats(ctx, a.flags.Topic)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(total.GetGroups(), func(g *queue.GroupStats) bool { return g.GetGroup() == group })
	if at < 0 {
		return nil, nil, fmt.Errorf("the topic has no group %s", group)
	}
	return total, total.GetGroups()[at], nil
}

// unsettled returns the number of messages that a group has not settled, including those that have
// not appeared yet.
func unsettled(total *queue.TopicStats, g *queue.GroupStats) int64 {
	return total.GetScheduled() + g.GetWaiting() + g.GetRunning() + g.GetRetrying()
}

// settled checks that every job was produced once, and was acknowledged or became a dead letter
// once.
func (j *judge) settled() error {
	total, g, err := j.groupStats(j.ctx, indexers)
	if err != nil {
		return err
	}
	dead, replayed := int64(len(j.poison)), int64(0)
	if j.fixed {
		replayed = dead
	}
	acked := int64(len(j.jobs)) - dead + replayed
	switch {
	case total.GetProduced() != int64(len(j.jobs)):
		return fmt.Errorf("%d jobs were produced, of %d lines", total.GetProduced(), len(j.jobs))
	case unsettled(total, g) != 0:
		return fmt.Errorf("not all jobs are done with: %d delayed, and %v", total.GetScheduled(), g)
	case g.GetAcked() != acked || g.GetDead() != dead || g.GetReplayed() != replayed || g.GetTrimmed() != 0:
		return fmt.Errorf("%v; want %d acked, %d dead, %d replayed, and none trimmed", g, acked, dead, replayed)
	}
	delayed, failing := 0, 0
	for _, one := range j.jobs {
		if one.delay > 0 {
			delayed++
		}
		if one.fault == twice {
			failing++
		}
	}
	j.printf("jobs: %d, of them %d delayed, %d failing twice, %d poison; all done with: %d acknowledged, %d given up, %d tried again",
		len(j.jobs), delayed, failing, len(j.poison), g.GetAcked(), g.GetDead()-g.GetReplayed(), g.GetRetried())
	return nil
}

// deadLetters checks that the dead letters are exactly the poison, with unchanged content.
func (j *judge) deadLetters() error {
	want := maps.Clone(j.poison)
	if j.fixed {
		clear(want)
	}
	n := len(want)
	for letter, err := range j.admin.DeadLetters(j.ctx, j.flags.Topic, "") {
		if err != nil {
			return err
		}
		line := letter.GetHeaders()[lineHeader]
		one := want[line]
		if one == nil {
			return fmt.Errorf("%s is a dead letter for %q, and should not be, or not twice", line, letter.GetReason())
		}
		if err := same(letter, one); err != nil {
			return fmt.Errorf("the dead letter %s: %w", line, err)
		}
		delete(want, line)
	}
	for line := range want {
		return fmt.Errorf("%s is poison, and no dead letter", line)
	}
	j.printf("dead letters: %d, exactly the poison that is left", n)
	return nil
}

func same(letter *queue.DeadMessage, one *job) error {
	switch {
	case letter.GetGroup() != indexers:
		return fmt.Errorf("it is of the group %s", letter.GetGroup())
	case letter.GetKey() != one.nick || string(letter.GetPayload()) != one.text:
		return fmt.Errorf("it says %s: %q, want %s: %q", letter.GetKey(), letter.GetPayload(), one.nick, one.text)
	case letter.GetReason() == errTwice.Error():
		return errors.New("it failed as one that fails twice")
	}
	return nil
}

// once checks that each line was indexed for exactly one message, that jobs failed as often as
// their fault requires, and that no job was delivered before it was due.
func (j *judge) once() error {
	done, err := j.redis.HGetAll(j.ctx, j.indexed.done()).Result()
	if err != nil {
		return err
	}
	messages := make(map[string]string, len(done))
	for message, line := range done {
		if other, ok := messages[line]; ok {
			return fmt.Errorf("%s has two messages, %s and %s", line, message, other)
		}
		messages[line] = message
	}
	failures, err := j.indexed.counts(j.ctx, j.indexed.failures())
	if err != nil {
		return err
	}
	for line, one := range j.jobs {
		if _, ok := messages[line]; ok != j.mustBeIndexed(one) {
			return fmt.Errorf("%s is indexed: %v, want %v", line, ok, !ok)
		}
		if n := failures[line]; one.fault == "" && n != 0 || one.fault == twice && n < 2 || one.fault == poison && n == 0 {
			return fmt.Errorf("%s failed %d times, and is %q", line, n, one.fault)
		}
		delete(messages, line)
	}
	for line := range messages {
		return fmt.Errorf("%s is indexed, and not in the files", line)
	}
	tally, err := j.indexed.counts(j.ctx, j.indexed.tally())
	if err != nil {
		return err
	}
	if n := tally["early"]; n != 0 {
		return fmt.Errorf("%d jobs came before they were due", n)
	}
	j.printf("effects: each once; %d deliveries were lost with their worker, %d came again when their line was indexed already",
		tally["lost"], tally["repeated"])
	return nil
}

// index returns an error if the index differs from one computed from the files.
func (j *judge) index() error {
	want := make(map[string]map[string]int)
	for line, one := range j.jobs {
		if !j.mustBeIndexed(one) {
			continue
		}
		for word, n := range wordsOf(one.text) {
			if want[word] == nil {
				want[word] = make(map[string]int)
			}
			want[word][line] = n
		}
	}
	got, err := j.indexed.postings(j.ctx)
	if err != nil {
		return err
	}
	entries, total := 0, make(map[string]int, len(want))
	for word, lines := range want {
		if !maps.Equal(got[word], lines) {
			return fmt.Errorf("%q is in the lines %v by the index, and by the files in %v", word, got[word], lines)
		}
		for _, n := range lines {
			total[word] += n
		}
		entries += len(lines)
	}
	for word := range got {
		if want[word] == nil {
			return fmt.Errorf("%q is in the index, and not in the files", word)
		}
	}
	totals, err := j.redis.ZRangeWithScores(j.ctx, j.indexed.words(), 0, -1).Result()
	if err != nil {
		return err
	}
	for _, z := range totals {
		if word := fmt.Sprint(z.Member); total[word] != int(z.Score) {
			return fmt.Errorf("%q was said %v times by the index, and by the files %d", word, z.Score, total[word])
		}
	}
	j.printf("index: %d words in %d places, equal to the one made from the files", len(want), entries)
	return nil
}
