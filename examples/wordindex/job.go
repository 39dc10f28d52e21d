package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/clients/cli/irclog"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// Headers of a job's message.
const (
	lineHeader  = "line"
	faultHeader = "fault"
	takesHeader = "takes"
)

// fault is the way in which a job fails. It is empty for jobs that do not fail.
type fault string

const (
	// twice fails its first two times.
	twice fault = "twice"
	// poison fails until the workers are fixed.
	poison fault = "poison"
)

// maxDelay is the maximum delay of a job.
const maxDelay = 3 * time.Second

// job is the indexing of one line that a user wrote.
type job struct {
	// line is the job's name: file and line number, encoded as an id.
	line       string
	nick, text string
	// delay is how long after its production the job appears in the topic: 0 for most jobs.
	delay time.Duration
	fault fault
	// takes is how long the job takes on top of the indexing; 0 leaves it to the worker.
	takes time.Duration
}

// hard replaces the jobs' delays and faults by work: 99 % of the jobs take up to 20 ms, 1 % take
// one to five seconds, and a few take Takes.
type hard struct {
	Seed  uint64        `env:"WORDINDEX_HARD_SEED" help:"Make no job delayed or failing; 99 % take up to 20 ms, 1 % 1 to 5 s, as this number chooses. 0 is off."`
	Jobs  int           `env:"WORDINDEX_HARD_JOBS" default:"24" help:"How many jobs take the longest time, if a seed is given."`
	Takes time.Duration `env:"WORDINDEX_HARD_TAKES" default:"60s" help:"The longest time."`
}

// apply changes jobs in place. The same seed and jobs always give the same result.
func (h *hard) apply(jobs []job) {
	if h.Seed == 0 {
		return
	}
	for i := range jobs {
		one := &jobs[i]
		one.delay, one.fault = 0, ""
		dice := rand.New(rand.NewPCG(xxhash.Sum64String(one.line), h.Seed))
		if dice.IntN(100) == 0 {
			one.takes = time.Second + time.Duration(dice.Int64N(int64(4*time.Second)))
		} else {
			one.takes = time.Duration(1 + dice.Int64N(int64(20*time.Millisecond)))
		}
	}
	for _, i := range rand.New(rand.NewPCG(uint64(len(jobs)), h.Seed)).Perm(len(jobs))[:min(h.Jobs, len(jobs))] {
		jobs[i].takes = h.Takes
	}
}

// readJobs returns one job for each message in the logs of the directory, in order, as the flags
// want them.
func (a *app) readJobs(dir string) ([]job, error) {
	jobs, err := readJobs(dir)
	if err == nil {
		a.flags.Hard.apply(jobs)
	}
	return jobs, err
}

// readJobs returns one job for each message in the logs of a directory, in order.
func readJobs(dir string) ([]job, error) {
	files, err := irclog.Files(dir)
	if err != nil {
		return nil, err
	}
	var jobs []job
	for _, path := range files {
		lines, err := irclog.Read(path)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			if l.IsMessage() {
				name := irclog.EncodeID(fmt.Sprintf("%s:%d", filepath.Base(path), l.Number))
				jobs = append(jobs, newJob(name, l.Sender, l.Content))
			}
		}
	}
	return jobs, nil
}

// newJob returns the job of a line. A tenth of the jobs is delayed, a twentieth fails twice, and
// one of two hundred is poison. The choice depends only on the line, so every reader of the files,
// and a restarted producer, makes the same one.
func newJob(line, nick, text string) job {
	j := job{line: line, nick: nick, text: text}
	dice := rand.New(rand.NewPCG(xxhash.Sum64String(line), 0))
	if dice.IntN(10) == 0 {
		j.delay = time.Duration(1+dice.IntN(int(maxDelay/time.Millisecond))) * time.Millisecond
	}
	switch n := dice.IntN(200); {
	case n == 0:
		j.fault = poison
	case n <= 10:
		j.fault = twice
	}
	return j
}

// message returns the job's message. The line is the idempotency key, so that the line has one job
// however often it is produced.
func (j *job) message() queue.Message {
	headers := map[string]string{lineHeader: j.line}
	if j.fault != "" {
		headers[faultHeader] = string(j.fault)
	}
	if j.takes != 0 {
		headers[takesHeader] = j.takes.String()
	}
	return queue.Message{Key: j.nick, Payload: []byte(j.text), Headers: headers, Delay: j.delay, IdempotencyKey: j.line}
}

// wordsOf counts the words of a text: runs of letters and digits, in lower case.
func wordsOf(text string) map[string]int {
	counts := make(map[string]int)
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		counts[word]++
	}
	return counts
}
