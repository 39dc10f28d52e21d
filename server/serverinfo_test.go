package server_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// TestServerInfo checks that the server reports the limits and features of its configuration, and
// serves reflection only if configured.
func TestServerInfo(t *testing.T) {
	t.Parallel()
	for _, reflection := range []bool{true, false} {
		s := servertest.Dev(t, servertest.WithServerOption(server.WithVersion("7.8.9")), servertest.With(func(c *config.Config) {
			c.HTTP.Reflection = reflection
			c.Limits.StreamsPerSubject, c.Limits.ChannelsPerStream, c.Queues.ConsumersPerSubject = 7, 77, 8
			c.Limits.HeartbeatInterval, c.Limits.SessionContentBytes = 9*time.Second, 9000
		}))
		token := s.MintAs(&ident.Principal{Subject: "eve"}, time.Hour)
		c := parleyv1connect.NewServerServiceClient(servertest.HTTPClient(t, token), s.URL)
		info, err := c.GetServerInfo(t.Context(), &parleyv1.GetServerInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		l := info.GetLimits()
		if info.GetVersion() != "7.8.9" || l.GetMaxStreamsPerSubject() != 7 || l.GetMaxChannelsPerStream() != 77 ||
			l.GetMaxConsumersPerSubject() != 8 || l.GetMaxSessionContentBytes() != 9000 || l.GetHeartbeatInterval().AsDuration() != 9*time.Second {
			t.Errorf("got %v", info)
		}
		features := info.GetFeatures()
		if !slices.Contains(features, parleyv1.ServerFeature_SERVER_FEATURE_QUEUES) ||
			slices.Contains(features, parleyv1.ServerFeature_SERVER_FEATURE_REFLECTION) != reflection {
			t.Errorf("reflection is %v: features %v", reflection, features)
		}
		for _, version := range []string{"v1", "v1alpha"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				s.URL+"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/grpc")
			resp, err := servertest.HTTPClient(t, "").Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if served := resp.StatusCode == http.StatusOK; served != reflection {
				t.Errorf("reflection is %v: %s is answered %d", reflection, version, resp.StatusCode)
			}
		}
	}
}
