package rpc

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/message"
)

// A client's deadline of months is accepted, and limited to UnaryTimeout.
func TestLongTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.UnaryTimeout = 100 * time.Millisecond })
	b.messages.send = func(ctx context.Context, _ message.SendRequest) (message.Receipt, error) {
		<-ctx.Done()
		return message.Receipt{}, ctx.Err()
	}
	for contentType, header := range map[string][2]string{
		"application/json": {"Connect-Timeout-Ms", "9999999999"}, "application/grpc+json": {"Grpc-Timeout", "99999999H"},
	} {
		body := `{"channelId":"a","content":"x"}`
		if contentType != "application/json" {
			body = "\x00\x00\x00\x00" + string(rune(len(body))) + body
		}
		resp, text := b.raw(b.h2, http.MethodPost, parleyv1connect.MessageServiceSendMessageProcedure,
			b.headers(contentType, header[0], header[1]), strings.NewReader(body))
		if !strings.Contains(text, "deadline_exceeded") && resp.Trailer.Get("Grpc-Status")+resp.Header.Get("Grpc-Status") != "4" {
			t.Errorf("%s: answered %d %s, %v", contentType, resp.StatusCode, text, resp.Trailer)
		}
	}
}

// connect can decode every message that isBase64 accepts.
func FuzzIsBase64(f *testing.F) {
	for _, seed := range []string{"", "QQ", "QQ==", "QQ=", "QUI", "QUI=", "QUJD", "%%%", "QU\nJD", "QUJD\n", "Q\r\n\r\nQ==", "QR==", "====", "+/+/", "-_-_"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		encoding := base64.URLEncoding
		if len(message)%4 != 0 {
			encoding = base64.RawURLEncoding
		}
		if _, err := io.ReadAll(base64.NewDecoder(encoding, strings.NewReader(message))); isBase64(message) && err != nil {
			t.Fatalf("%q passes, and is read with %v", message, err)
		}
	})
}
