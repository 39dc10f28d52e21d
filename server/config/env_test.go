package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/config"
)

// serviceVariables are the variables that Kubernetes sets in every pod for a Service of this name
// and port 8080.
func serviceVariables(service string) []string {
	prefix := strings.ToUpper(strings.ReplaceAll(service, "-", "_"))
	return []string{
		prefix + "_SERVICE_HOST=10.0.0.1", prefix + "_SERVICE_PORT=8080", prefix + "_SERVICE_PORT_HTTP_API=8080",
		prefix + "_PORT=tcp://10.0.0.1:8080", prefix + "_PORT_8080_TCP=tcp://10.0.0.1:8080", prefix + "_PORT_8080_TCP_PROTO=tcp",
		prefix + "_PORT_8080_TCP_PORT=8080", prefix + "_PORT_8080_TCP_ADDR=10.0.0.1", prefix + "_PORT_53_UDP=udp://10.0.0.1:53",
	}
}

// sections returns the parts of all keys' paths. As names of Services they make variables that
// resemble those of keys.
func sections() []string {
	parts := map[string]bool{}
	for _, key := range config.Keys() {
		for part := range strings.SplitSeq(key, ".") {
			parts[strings.ReplaceAll(part, "_", "-")] = true
		}
	}
	return slices.Collect(maps.Keys(parts))
}

func TestKubernetesServices(t *testing.T) {
	t.Parallel()
	services := []string{"parley", "parley-headless", "parley-redis-master-0"}
	for _, part := range sections() {
		services = append(services, "parley-"+part)
	}
	for _, service := range services {
		got, err := config.Load("", serviceVariables(service))
		if err != nil {
			t.Errorf("beside a Service named %s: %v", service, err)
		} else if diff := cmp.Diff(config.Default(), got); diff != "" {
			t.Errorf("a Service named %s changes the configuration:\n%s", service, diff)
		}
	}
}

func TestUnknownVariablesLikeKubernetes(t *testing.T) {
	t.Parallel()
	for _, pair := range []string{
		"PARLEY_REDIS_PORT=6380", "PARLEY_PORT=8080", "PARLEY_SERVICE=x", "PARLEY_SERVICE_HOSTS=x", "PARLEY_PORT_8080=x", "PARLEY_REDIS_HOST=10.0.0.1",
		"PARLEY_PORT_8080_TCP_NAME=x", "PARLEYSERVICE_HOST=x", "PARLEY_NATS_CREDENTIALS=x", "PARLEY_LISTEN_FILE=/x",
	} {
		_, err := config.Load("", []string{pair})
		name, _, _ := strings.Cut(pair, "=")
		if name == "PARLEYSERVICE_HOST" { // not our prefix
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), name+": unknown variable") {
			t.Errorf("%s: %v", pair, err)
		}
	}
}

func TestVariablesDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, key := range config.Keys() {
		for _, name := range []string{config.EnvName(key), config.EnvName(key) + "_FILE"} {
			got, ok := config.EnvKey(name)
			if ok && got != key {
				t.Errorf("%s names both %s and %s", name, key, got)
			}
			if ok && seen[name] != "" {
				t.Errorf("%s names both %s and %s", name, key, seen[name])
			}
			seen[name] = key
		}
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := config.Load("", []string{
		"PARLEY_AUTH_HS256_SECRET_FILE=" + file("hs256", strings.Repeat("s", 32)+"\n"),
		"PARLEY_REDIS_PASSWORD_FILE=" + file("redis", " p w\n\n"),
		"PARLEY_REDIS_SENTINEL_PASSWORD_FILE=" + file("sentinel", "sentinel's"),
		"PARLEY_REDIS_SENTINEL_ADDRS=a:1", "PARLEY_REDIS_SENTINEL_MASTER=m",
		"PARLEY_MONGO_URI_FILE=" + file("mongo", "mongodb://u:p@h/\r\n"),
		"PARLEY_NATS_URL_FILE=" + file("nats", "nats://u:p@h:4222"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Auth.HS256Secret = config.Secret(strings.Repeat("s", 32))
	want.Redis.Password = " p w\n" // only the final newline is dropped
	want.Redis.Sentinel = config.RedisSentinel{Addrs: []string{"a:1"}, Master: "m", Password: "sentinel's"}
	want.Mongo.URI, want.NATS.URL = "mongodb://u:p@h/", "nats://u:p@h:4222"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	_, err = config.Load("", []string{
		"PARLEY_REDIS_PASSWORD_FILE=" + file("other", "x"), "PARLEY_REDIS_PASSWORD=hunter2",
		"PARLEY_NATS_URL_FILE=" + filepath.Join(dir, "none"), "PARLEY_MONGO_URI_FILE=" + file("empty", "\n"),
	})
	if err == nil {
		t.Fatal("was accepted")
	}
	for _, want := range []string{
		"PARLEY_REDIS_PASSWORD: PARLEY_REDIS_PASSWORD_FILE is also set", "PARLEY_NATS_URL_FILE: ", "none: no such file", "PARLEY_MONGO_URI_FILE: ", "is empty",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error prints a secret: %v", err)
	}
}

func TestLoadServe(t *testing.T) {
	t.Parallel()
	_, err := config.LoadServe("", []string{"PARLEY_DATA_DIR=/var/lib/parley", "PARLEY_REDIS_ADDR=", "PARLEY_SHARDS=0", "PARLEY_X=1"})
	if err == nil {
		t.Fatal("was accepted")
	}
	for _, want := range []string{"auth: one of", "data_dir: has no effect", "redis.addr: is empty", "shards: is 0", "PARLEY_X: unknown variable"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	for _, env := range [][]string{
		{"PARLEY_AUTH_JWKS_URL=https://idp.example/jwks"},
		{"PARLEY_AUTH_PUBLIC_KEYS=a.pem", "PARLEY_REDIS_ADDR=", "PARLEY_REDIS_CLUSTER_ADDRS=a:1"},
		{"PARLEY_AUTH_PUBLIC_KEYS=a.pem", "PARLEY_REDIS_SENTINEL_ADDRS=a:1,b:1", "PARLEY_REDIS_SENTINEL_MASTER=m", "PARLEY_REDIS_DB=3"},
	} {
		if _, err := config.LoadServe("", env); err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}
