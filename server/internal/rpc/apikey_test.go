package rpc

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Requests that cannot make a useful key are refused, with the field at fault.
func TestCreateAPIKeyRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	admin := b.adminClient(0, b.mintAs(&ident.Principal{Subject: "ada", Admin: ident.AdminActions}))
	for field, change := range map[string]func(*parleyv1.CreateApiKeyRequest){
		"name":                       func(r *parleyv1.CreateApiKeyRequest) { r.Name = "" },
		"subject":                    func(r *parleyv1.CreateApiKeyRequest) { r.Subject = "~erased" },
		"capabilities":               func(r *parleyv1.CreateApiKeyRequest) { r.Capabilities = nil },
		"capabilities[0].name":       func(r *parleyv1.CreateApiKeyRequest) { r.Capabilities[0].Name = "channels:*" },
		"capabilities[0].actions":    func(r *parleyv1.CreateApiKeyRequest) { r.Capabilities[0].Actions = nil },
		"capabilities[0].actions[0]": func(r *parleyv1.CreateApiKeyRequest) { r.Capabilities[0].Actions[0] = "SEND" },
		"capabilities[1].name": func(r *parleyv1.CreateApiKeyRequest) {
			r.Capabilities = append(r.GetCapabilities(), r.GetCapabilities()[0])
		},
		"life": func(r *parleyv1.CreateApiKeyRequest) { r.Life = durationpb.New(time.Second) },
	} {
		req := &parleyv1.CreateApiKeyRequest{
			Name: "import", Subject: "svc", Capabilities: []*parleyv1.Capability{{Name: "channel:*", Actions: []string{"send"}}},
		}
		if _, err := admin.CreateApiKey(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		change(req)
		_, err := admin.CreateApiKey(t.Context(), req)
		if d, _ := details(t, err); connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetField() != field {
			t.Errorf("%s: %v, field %q", field, err, d.GetField())
		}
	}
	for _, overlap := range []time.Duration{-time.Second, 91 * 24 * time.Hour} {
		_, err := admin.RotateApiKey(t.Context(), &parleyv1.RotateApiKeyRequest{KeyId: strings.Repeat("a", 24), Overlap: durationpb.New(overlap)})
		if d, _ := details(t, err); d.GetField() != "overlap" {
			t.Errorf("overlap %v: %v", overlap, err)
		}
	}
}

// The log has no part of a credential.
func TestAPIKeyIsNotLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	admin := b.adminClient(0, b.mintAs(&ident.Principal{Subject: "ada", Admin: ident.AdminActions}))
	created, err := admin.CreateApiKey(t.Context(), &parleyv1.CreateApiKeyRequest{
		Name: "import", Subject: "svc", Capabilities: []*parleyv1.Capability{{Name: "presence", Actions: []string{"watch"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	key := created.GetCredential()
	_, err = b.adminClient(0, key).ListApiKeys(t.Context(), &parleyv1.ListApiKeysRequest{})
	if d, _ := details(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING {
		t.Errorf("a key without the capability: %v", err)
	}
	if _, err := b.adminClient(0, key[:len(key)-1]+"~").ListApiKeys(t.Context(), &parleyv1.ListApiKeysRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("another secret: %v", err)
	}
	_, secret, _ := strings.Cut(strings.TrimPrefix(key, "parley_"), "_")
	for _, line := range b.logged.lines(t) {
		for name, value := range line {
			if text, ok := value.(string); ok && strings.Contains(text, secret[:20]) {
				t.Errorf("logged %s: %q", name, text)
			}
		}
	}
}
