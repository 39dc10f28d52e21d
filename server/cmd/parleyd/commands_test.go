package main

import (
	"strings"
	"testing"
)

func TestDevRefusesOtherEngines(t *testing.T) {
	t.Parallel()
	if err := serveOnly([]string{"HOME=/", "PARLEY_NATS_MAX_AGE=1h", "PARLEY_REDIS_KEY_PREFIX=a", "PARLEY_BUCKETS=4"}); err != nil {
		t.Errorf("what dev heeds: %v", err)
	}
	for _, name := range []string{
		"PARLEY_MONGO_URI", "PARLEY_MONGO_DATABASE", "PARLEY_REDIS_ADDR", "PARLEY_REDIS_PASSWORD", "PARLEY_NATS_URL",
	} {
		err := serveOnly([]string{"HOME=/", name + "=secret"})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "parleyd serve") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
