package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/telemetry"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := telemetry.Limit(slog.New(slog.NewTextHandler(&out, nil)), 5)
		derived := log.With("a", 1).WithGroup("g")
		for range 40 {
			log.Info("refused")
			derived.Warn("failed")
		}
		if n := strings.Count(out.String(), "\n"); n != 50 {
			t.Errorf("%d records are written, want 50", n)
		}
		log.Error("internal")
		if !strings.Contains(out.String(), "msg=internal dropped=30") {
			t.Errorf("the last record is\n%s", out.String()[max(0, out.Len()-200):])
		}
		time.Sleep(time.Second) //nolint:forbidigo // synctest's clock
		out.Reset()
		for range 6 {
			log.Info("refused")
		}
		if n := strings.Count(out.String(), "\n"); n != 5 || strings.Contains(out.String(), "dropped") {
			t.Errorf("a second later:\n%s", out.String())
		}
	})
}
