package rpc

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"
)

// What isBase64 lets pass connect can read: it takes this reader.
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
