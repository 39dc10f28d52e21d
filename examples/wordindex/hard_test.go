package main

import (
	"testing"
	"time"
)

// TestHard checks how many jobs take how long, that all readers of the files get the same, and that
// another seed chooses others.
func TestHard(t *testing.T) {
	t.Parallel()
	read := func(seed uint64) []job {
		var jobs []job
		for i := range 20000 {
			jobs = append(jobs, newJob("log:"+time.Duration(i).String(), "ann", "hello"))
		}
		(&hard{Seed: seed, Jobs: 24, Takes: time.Minute}).apply(jobs)
		return jobs
	}
	one, again, other := read(1), read(1), read(2)
	long, slow, differ := 0, 0, 0
	for i := range one {
		if one[i] != again[i] {
			t.Fatalf("%s is another job the second time", one[i].line)
		}
		if one[i].delay != 0 || one[i].fault != "" {
			t.Fatalf("%+v is delayed or fails", one[i])
		}
		if one[i].takes != other[i].takes && other[i].takes == time.Minute {
			differ++
		}
		switch takes := one[i].takes; {
		case takes == time.Minute:
			long++
		case takes >= time.Second && takes <= 5*time.Second:
			slow++
		case takes <= 0 || takes > 20*time.Millisecond:
			t.Errorf("%s takes %s", one[i].line, takes)
		}
	}
	if long != 24 || slow < 160 || slow > 240 || differ == 0 {
		t.Errorf("%d long, %d slow jobs; %d long ones of another seed differ", long, slow, differ)
	}
}
