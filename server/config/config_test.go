package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/parleyhq/parley/server/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExampleIsDefault(t *testing.T) {
	t.Parallel()
	got, err := config.Load(write(t, string(config.Example())), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("example differs from the defaults (-default +example):\n%s", diff)
	}
	var keys map[string]any
	if err := yaml.Unmarshal(config.Example(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range config.Keys() {
		var at any = keys
		for part := range strings.SplitSeq(key, ".") {
			section, _ := at.(map[string]any)
			var ok bool
			if at, ok = section[part]; !ok {
				t.Errorf("the example lacks %s", key)
				break
			}
		}
	}
}

func TestEmptyIsDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "redis:\nnats: {}\n"} {
		got, err := config.Load(write(t, text), nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(config.Default(), got); diff != "" {
			t.Errorf("%q:\n%s", text, diff)
		}
	}
}

func TestFileThenEnvironment(t *testing.T) {
	t.Parallel()
	path := write(t, "listen: 0.0.0.0:9000\nredis: {pool_size: 7, fail_open: true}\nlimits: {unary_timeout: 5s}\n")
	got, err := config.Load(path, []string{
		"PARLEY_REDIS_POOL_SIZE=9", "PARLEY_REDIS_PASSWORD=123", "PARLEY_TELEMETRY_TRACE_RATIO=1",
		"PARLEY_AUTH_PUBLIC_KEYS=a.pem, b.pem", "PARLEY_NATS_MAX_AGE=2h", "PARLEY_REDIS_ALLOW_VOLATILE=true",
		"PARLEY_AUTH_HS256_SECRET=0123456789abcdef0123456789abcdef", "PARLEY_REDIS_MIN_IDLE_CONNS=0",
		"PARLEY_ADDR=http://127.0.0.1:8080", "PARLEY_TOKEN=x", "PARLEY_CONFIG=x", "HOME=/",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Listen = "0.0.0.0:9000"
	want.Redis.PoolSize, want.Redis.FailOpen, want.Redis.Password = 9, true, "123"
	want.Redis.AllowVolatile, want.Redis.MinIdleConns = true, 0
	want.Limits.UnaryTimeout = 5 * time.Second
	want.Telemetry.TraceRatio = 1
	want.Auth.PublicKeys, want.NATS.MaxAge = []string{"a.pem", "b.pem"}, 2*time.Hour
	want.Auth.HS256Secret = "0123456789abcdef0123456789abcdef"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	base := config.Default()
	base.Shards, base.HTTP.CORSOrigins, base.Limits.RequestsPerSecond = 4, []string{"*"}, 1e6
	got, err := config.Override(base, []string{"PARLEY_LIMITS_HEARTBEAT_INTERVAL=400ms", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	want := base
	want.Limits.HeartbeatInterval = 400 * time.Millisecond
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"PARLEY_LIMITS_HARTBEAT=1s", "PARLEY_LIMITS_HEARTBEAT_INTERVAL=1ms"} {
		if _, err := config.Override(base, []string{bad}); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		env        []string
		want       []string
	}{
		{
			"unknown keys, all at once", "lisen: x\nredis: {adr: y, pool: {size: 1}}\n",
			[]string{"PARLEY_REDIS_ADR=z"},
			[]string{"lisen: unknown key", "redis.adr: unknown key", "redis.pool.size: unknown key", "PARLEY_REDIS_ADR: unknown variable"},
		},
		{"a value where a section is", "redis: 5\n", nil, []string{"redis: is a section"}},
		{"a section where a value is", "listen: {a: 1}\n", nil, []string{"listen.a: unknown key"}},
		{
			"wrong kinds and bad values together", "shards: many\nredis: {db: 1.5, pool_size: 0, password: 123}\nlimits: {drain_timeout: 5}\n",
			[]string{"PARLEY_HTTP_PAGE=perhaps", "PARLEY_LIMITS_STREAMS=[", "PARLEY_LOG_LEVEL=loud", "PARLEY_UNKNOWN=1"},
			[]string{
				"shards: must be a whole number", "redis.db: must be a whole number", "redis.pool_size: is 0", "redis.password: must be a string",
				"limits.drain_timeout: must be a duration", "PARLEY_HTTP_PAGE: must be true or false",
				"PARLEY_LIMITS_STREAMS: must be a whole number", "log.level: is \"loud\"", "PARLEY_UNKNOWN: unknown variable",
			},
		},
		{
			"presence", "presence: {ttl: 5s, lease_ttl: 10s, offline_after: -1s, workers: 0, cache: none, login_policy: two, watch: friends}\n", nil,
			[]string{
				"presence.ttl: is 5s, must be 1m0s to 24h0m0s", "presence.lease_ttl: is 10s, must be at most half", "presence.offline_after: is -1s",
				"presence.workers: is 0", `presence.cache: is "none", must be one of lru, full`,
				`presence.login_policy: is "two", must be one of all, platform, class, single`, `presence.watch: is "friends", must be one of all, shared_channel`,
			},
		},
		{
			"renamed", "limits: {queue_bytes: 5}\n",
			[]string{"PARLEY_LIMITS_QUEUE_EVENTS=5"},
			[]string{
				"limits.queue_bytes: was renamed to limits.stream_queue_bytes",
				"PARLEY_LIMITS_QUEUE_EVENTS: was renamed to PARLEY_LIMITS_STREAM_QUEUE_EVENTS",
			},
		},
		{
			"Sentinel and cluster", "redis: {addr: 'h:1', db: 1, sentinel: {addrs: [h], password: p}, cluster: {addrs: [h]}}\n", nil,
			[]string{
				"redis.sentinel.addrs[0]:", "redis.cluster.addrs[0]:", "redis: sentinel.addrs and cluster.addrs must", "redis.addr: is ignored",
				"redis.sentinel: addrs and master", "redis.db: is 1, must be 0",
			},
		},
		{
			"a Sentinel's password without a Sentinel", "redis: {sentinel: {master: m, password: p}}\n", nil,
			[]string{"redis.sentinel: addrs and master", "redis.sentinel: username and password"},
		},
		{
			"TLS of Redis and NATS", "redis: {tls: {ca: a, cert: b}}\nnats: {tls: {key: a}}\n", nil,
			[]string{"redis.tls: cert and key", "redis.tls.enabled: must be true", "nats.tls: cert and key"},
		},
		{"TLS on a socket", "redis: {addr: /run/redis.sock, tls: {enabled: true}}\n", nil, []string{"redis.tls.enabled: must be false"}},
		{"twice", "shards: 1\nshards: 2\n", nil, []string{"already defined"}},
		{"no mapping", "- a\n", nil, []string{"not a YAML mapping"}},
		{
			"bad values, all at once",
			"listen: x\nshards: 0\nnats: {replicas: 2, max_age: 25h}\nredis: {dial_timeout_ms: 0, key_prefix: 'a{'}\n" +
				"auth: {hs256_secret: short, jwks_url: 'ftp://x'}\nlog: {level: loud, format: xml}\ntls: {cert: a}\n" +
				"limits: {frame_timeout: 1s, stream_queue_bytes: 5}\ntelemetry: {trace_ratio: 2}\nhttp: {cors_origins: [example.org]}\n",
			nil,
			[]string{
				"listen:", "shards:", "nats.replicas:", "nats.max_age:", "redis.dial_timeout_ms:", "redis.key_prefix:",
				"auth.hs256_secret:", "auth.jwks_url:", "log.level:", "log.format:", "tls:", "limits.frame_timeout:",
				"limits.stream_queue_bytes:", "telemetry.trace_ratio:", "http.cors_origins[0]:",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(write(t, tt.file), tt.env)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2-hunter2-hunter2-"
	cfg := config.Default()
	cfg.Auth.HS256Secret, cfg.Redis.Password = secret, secret
	cfg.Mongo.URI = "mongodb://user:" + secret + "@a,b/?tlsCertificateKeyFilePassword=" + secret + "&replicaSet=rs0"
	cfg.NATS.URL = "nats://" + secret + "@a:4222,nats://u:" + secret + "@b:4222"
	asYAML, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "cfg", cfg, "secret", cfg.Auth.HS256Secret, "uri", cfg.Mongo.URI)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "cfg", cfg)
	for _, text := range []string{
		fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), fmt.Sprintf("%q %x", cfg.Redis.Password, cfg.Redis.Password), string(asYAML),
		string(asJSON), logged.String(),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("holds the secret: %s", text)
		}
	}
	if got, want := cfg.Mongo.URI.String(), "mongodb://[redacted]@a,b/?tlsCertificateKeyFilePassword=[redacted]&replicaSet=rs0"; got != want {
		t.Errorf("uri prints as %s, want %s", got, want)
	}
	_, err = config.Load(write(t, "{}"), []string{"PARLEY_REDIS_DB=[" + secret})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error prints a variable's value: %v", err)
	}
}

func TestDocHasEveryKey(t *testing.T) {
	t.Parallel()
	doc, err := config.Doc()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range config.Keys() {
		if !strings.Contains(doc, "\n| `"+key+"` | `"+config.EnvName(key)+"`") {
			t.Errorf("the reference lacks %s", key)
		}
	}
	for _, want := range []string{
		"| `redis.pool_size` | `PARLEY_REDIS_POOL_SIZE` | 50 |", "`PARLEY_REDIS_PASSWORD_FILE` | none |", "\n## redis.sentinel\n",
		"| host:port, or the path of a unix socket.",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the reference lacks %q", want)
		}
	}
}
