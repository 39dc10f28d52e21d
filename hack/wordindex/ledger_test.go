package main

import (
	"strings"
	"testing"
	"time"
)

// TestLedger checks which deliveries are found wrong.
func TestLedger(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ entries, want string }{
		"each once":                              {"begin 100 a/1 m 1|ok 200 a/1 m 1", ""},
		"in flight on the killed worker":         {"begin 100 k/1 m 1|begin 9000 a/1 m 2|ok 9100 a/1 m 2", ""},
		"just finished by the killed worker":     {"begin 100 k/1 m 1|ok 4000 k/1 m 1|begin 9000 a/1 m 2", ""},
		"long finished by the killed worker":     {"begin 100 k/1 m 1|ok 200 k/1 m 1|begin 9000 a/1 m 2", "1 deliveries were further ones"},
		"twice after the killed worker":          {"begin 100 k/1 m 1|begin 6000 a/1 m 2|begin 9000 b/1 m 3", "1 during the time after the kill"},
		"twice without a kill":                   {"begin 100 a/1 m 1|begin 1500 b/1 m 2", "1 during the start"},
		"on the worker that replaced the killed": {"begin 100 k/2 m 1|begin 9000 a/1 m 2", "further ones"},
		"charged for nothing":                    {"begin 100 a/1 m 2|ok 200 a/1 m 2", "1 jobs were charged an attempt"},
	} {
		l, err := parseLedger(strings.Split(c.entries, "|"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.UnixMilli(5000)
		e := &ending{killed: map[string]time.Time{"k/1": at}, phases: []phase{{"the kill", at}, {calm, at.Add(time.Second)}}}
		wrong := l.judge(e)
		if (len(wrong) == 1) != (c.want != "") || len(wrong) > 0 && !strings.HasPrefix(wrong[0], "m; attempt ") {
			t.Errorf("%s: the stories are %q", name, wrong)
		}
		if err := e.Problems(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	l, err := parseLedger([]string{"begin 100 a/1 m 1", "failed 200 a/1 m 1", "begin 300 a/1 m 2", "ok 400 a/1 m 2"})
	if got := story(l["m"]); err != nil || strings.Count(got, "its failure") != 1 {
		t.Errorf("the story of a failure is %q, %v", got, err)
	}
	if _, err := parseLedger([]string{"begin x a/1 m 1"}); err == nil {
		t.Error("a record without a time passes")
	}
}
