package server_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/servertest"
)

// TestAPIKey checks on every node that an API key is accepted at once, that its secrets overlap,
// that its capabilities hold, and that its revocation ends calls and streams permanently.
func TestAPIKey(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*servertest.Server{
		"dev":  func(t *testing.T) []*servertest.Server { return []*servertest.Server{servertest.Dev(t)} },
		"real": func(t *testing.T) []*servertest.Server { return fleetOf(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			nodes := start(t)
			first := nodes[0]
			admin := first.Admin(first.TokenOf("root"))
			created, err := admin.CreateApiKey(ctx, &parleyv1.CreateApiKeyRequest{
				Name: "import", Subject: "importer", Life: durationpb.New(time.Hour), Capabilities: []*parleyv1.Capability{
					{Name: "channel:*", Actions: []string{"send", "subscribe", "history"}}, {Name: "admin", Actions: []string{"read"}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			id, key := created.GetApiKey().GetKeyId(), created.GetCredential()
			if k := created.GetApiKey(); k.GetState() != parleyv1.ApiKeyState_API_KEY_STATE_ACTIVE || k.GetCreatedBy() != "root" ||
				k.GetExpireTime().AsTime().Sub(k.GetCreateTime().AsTime()) != time.Hour || k.GetLastUseTime() != nil {
				t.Errorf("created %v", k)
			}
			e := &ends{t: t}
			revoked := make(chan struct{})
			for _, s := range nodes {
				_, err := s.Client(key).SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: "hello"})
				if err != nil {
					t.Fatalf("send: %v", err)
				}
				stream, err := s.Client(key).Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("room", 0)}})
				e.watch("Subscribe", stream, err, func() time.Time {
					select {
					case <-revoked:
					default:
						t.Error("the stream ended before the key was revoked")
					}
					return time.Time{}
				})
			}
			if err := callErr(first.Admin(key).RevokeApiKey(ctx, &parleyv1.RevokeApiKeyRequest{KeyId: id})); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("revoke with a key that may only read: %v", err)
			}
			// All tokens of the subject are revoked, and not its keys.
			if err := callErr(admin.RevokeTokens(ctx, &parleyv1.RevokeTokensRequest{Target: &parleyv1.RevokeTokensRequest_UserId{UserId: "importer"}})); err != nil {
				t.Fatal(err)
			}
			for _, s := range nodes {
				refusedSoon(t, s, login(first, "importer", ""))
			}
			rotated, err := admin.RotateApiKey(ctx, &parleyv1.RotateApiKeyRequest{KeyId: id})
			if err != nil || rotated.GetCredential() == key || rotated.GetApiKey().GetOldSecretExpireTime() == nil {
				t.Fatalf("rotate: %v, %v", rotated, err)
			}
			for _, s := range nodes {
				for _, credential := range []string{key, rotated.GetCredential()} {
					until := time.Now().Add(5*time.Second + slowMachine) // a node may use what it has read for so long
					for {
						_, err := s.Client(credential).ListChannels(ctx, &parleyv1.ListChannelsRequest{})
						if err == nil {
							break
						}
						if credential == key || time.Now().After(until) {
							t.Fatalf("after the rotation: %v", err)
						}
					}
				}
			}
			close(revoked)
			last := nodes[len(nodes)-1]
			for range 2 { // it may be repeated
				got, err := last.Admin(last.TokenOf("root")).RevokeApiKey(ctx, &parleyv1.RevokeApiKeyRequest{KeyId: id, Reason: "leaked"})
				if r := got.GetRevocation(); err != nil || r.GetApiKeyId() != id || r.GetReason() != "leaked" ||
					r.GetExpireTime().AsTime().Before(created.GetApiKey().GetExpireTime().AsTime()) {
					t.Fatalf("revoke: %v, %v", got, err)
				}
			}
			for _, s := range nodes {
				refusedSoon(t, s, key)
				refusedSoon(t, s, rotated.GetCredential())
			}
			e.wg.Wait()
			first.Stop()
			first.Start()
			refusedSoon(t, first, rotated.GetCredential())
			listed, err := first.Admin(first.TokenOf("root")).ListApiKeys(ctx, &parleyv1.ListApiKeysRequest{})
			if err != nil || len(listed.GetApiKeys()) != 1 || listed.GetApiKeys()[0].GetState() != parleyv1.ApiKeyState_API_KEY_STATE_REVOKED ||
				listed.GetApiKeys()[0].GetLastUseTime() == nil {
				t.Errorf("listed %v, %v", listed, err)
			}
		})
	}
}
