package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// module is the import path prefix of every package in this repository, of whichever module.
const module = "github.com/parleyhq/parley/"

// outside lists import path prefixes that domain packages, such as message and queue, must not
// import, even indirectly: wire formats, drivers and transports.
var outside = []string{
	module + "gen/", module + "internal/gen/", "connectrpc.com/", "google.golang.org/protobuf/", "google.golang.org/grpc",
	"go.mongodb.org/", "github.com/redis/", "github.com/nats-io/", "github.com/cockroachdb/", "github.com/prometheus/",
}

// layer is a set of packages and what they may import. Paths are relative to the module. A path
// that ends in a slash includes everything below it.
type layer struct {
	name string
	// packages are bound by the rule, apart from those in except.
	packages, except []string
	// imports are the repository's packages that the layer may import directly, besides its own.
	// The imports of those packages have their own rules.
	imports []string
	// never are import path prefixes that the layer must not import, directly or indirectly.
	never []string
	// later is true if the layer's packages need not exist yet.
	later bool
}

// betweenNodes are import path prefixes that packages cluster and cluster/remote must not import,
// directly or indirectly.
var betweenNodes = []string{
	module + "gen/go/parley/v1", "connectrpc.com/", "go.mongodb.org/", "github.com/redis/", "github.com/nats-io/",
	"github.com/cockroachdb/",
}

// layers is the dependency rule: cmd -> server -> adapters and transport -> domain -> fault and
// ident -> std.
var layers = []layer{
	{
		name:     "generated code imports generated code",
		packages: []string{"gen/", "internal/gen/"},
		imports:  []string{"gen/", "internal/gen/"},
	},
	{
		name:     "errors",
		packages: []string{"server/internal/fault"},
		never:    append([]string{"go.opentelemetry.io/"}, outside...),
	},
	{
		name:     "identity",
		packages: []string{"server/internal/ident"},
		imports:  []string{"server/internal/fault"},
		never:    outside,
	},
	{
		name:     "starting and stopping knows nobody",
		packages: []string{"server/internal/lifecycle"},
		never:    append([]string{"go.opentelemetry.io/"}, outside...),
	},
	{
		name:     "what waits for clients is counted in bytes alone",
		packages: []string{"server/internal/unread"},
		never:    append([]string{"go.opentelemetry.io/"}, outside...),
	},
	{
		name:     "certificate files know nobody",
		packages: []string{"server/internal/certfile"},
		never:    append([]string{"go.opentelemetry.io/"}, outside...),
	},
	{
		name:     "features never import each other",
		packages: []string{"server/internal/message/"},
		imports: []string{
			"server/internal/fault", "server/internal/ident", "server/internal/pagetoken", "server/internal/lifecycle",
		},
		never: outside,
	},
	{
		name:     "channels stand on the log",
		packages: []string{"server/internal/channel/"},
		imports: []string{
			"server/internal/message", "server/internal/fault", "server/internal/ident", "server/internal/pagetoken",
			"server/internal/lifecycle",
		},
		never: outside,
	},
	{
		name:     "sessions stand on messages and declare what they need of channels",
		packages: []string{"server/internal/session/"},
		imports:  []string{"server/internal/message", "server/internal/fault", "server/internal/ident", "server/internal/lifecycle"},
		never:    outside,
	},
	{
		name:     "page tokens",
		packages: []string{"server/internal/pagetoken/"},
		imports:  []string{"server/internal/fault"},
		never:    outside,
	},
	{
		name:     "streams know nothing of what they carry",
		packages: []string{"server/internal/stream/"},
		imports:  []string{"server/internal/fault"},
		never:    outside,
	},
	{
		name:     "the log of a partition is declared by itself",
		packages: []string{"server/internal/queue/qlog"},
		never:    append([]string{"go.opentelemetry.io/"}, outside...),
	},
	{
		name:     "the dispatcher does no I/O",
		packages: []string{"server/internal/queue/dispatch"},
		imports:  []string{"server/internal/queue/qlog"},
		never:    append([]string{"go.opentelemetry.io/", "net/http"}, outside...),
		later:    true,
	},
	{
		name:     "topics stand on the declaration of the log",
		packages: []string{"server/internal/queue/topics"},
		imports:  []string{"server/internal/queue/qlog", "server/internal/fault", "server/internal/lifecycle"},
		never:    outside,
		later:    true,
	},
	{
		name:     "producers and the keeper stand on the log",
		packages: []string{"server/internal/queue/produce", "server/internal/queue/keeper"},
		imports:  []string{"server/internal/queue/qlog", "server/internal/fault", "server/internal/lifecycle"},
		never:    outside,
	},
	{
		name:     "consumers stand on the dispatcher",
		packages: []string{"server/internal/queue/consume"},
		imports: []string{
			"server/internal/queue/qlog", "server/internal/queue/dispatch", "server/internal/fault", "server/internal/lifecycle",
			"server/internal/stream",
		},
		never: outside,
	},
	{
		name:     "what looks into queues stands on their log",
		packages: []string{"server/internal/queue/inspect"},
		imports:  []string{"server/internal/queue/qlog", "server/internal/fault", "server/internal/lifecycle"},
		never:    outside,
	},
	{
		name:     "features never import each other",
		packages: []string{"server/internal/presence/", "server/internal/chat/", "server/internal/revocation/", "server/internal/webhook/"},
		except:   []string{"server/internal/revocation/revocationtest"},
		imports: []string{
			"server/internal/fault", "server/internal/ident", "server/internal/lifecycle", "server/internal/pagetoken", "server/internal/stream",
		},
		never: outside,
		later: true,
	},
	{
		name:     "features never import each other",
		packages: []string{"server/internal/apikey/"},
		except:   []string{"server/internal/apikey/apikeytest"},
		imports:  []string{"server/internal/fault", "server/internal/ident", "server/internal/lifecycle"},
		never:    outside,
	},
	{
		name:     "pipelines know the message and no engine",
		packages: []string{"server/internal/feed/", "server/internal/fanout/", "server/internal/retention/", "server/internal/erasure/"},
		imports: []string{
			"server/internal/message", "server/internal/channel", "server/internal/fault", "server/internal/ident", "server/internal/lifecycle",
			"server/internal/stream", "server/internal/unread",
		},
		never: outside,
	},
	{
		name:     "calls between nodes know no feature",
		packages: []string{"server/internal/cluster"},
		imports:  []string{"server/internal/fault", "server/internal/lifecycle", "internal/gen/parley/cluster/"},
		never:    betweenNodes,
	},
	{
		name:     "features talk between nodes in records of their own, over whatever carries them",
		packages: []string{"server/internal/cluster/remote"},
		imports: []string{
			"server/internal/cluster", "server/internal/message", "server/internal/channel", "server/internal/fanout",
			"server/internal/queue/consume", "server/internal/queue/dispatch", "server/internal/queue/qlog",
			"server/internal/presence", "server/internal/session", "server/internal/fault", "server/internal/ident",
			"server/internal/revocation", "server/internal/lifecycle", "server/internal/stream", "internal/gen/parley/cluster/",
		},
		never: betweenNodes,
	},
	{
		name:     "adapters know the domain and their driver",
		packages: []string{"server/internal/store/", "server/internal/natsbus/", "server/internal/redisproc/"},
		except:   []string{"server/internal/store/storetest"},
		imports: []string{
			"server/internal/message", "server/internal/channel", "server/internal/fault", "server/internal/ident",
			"server/internal/feed", "server/internal/fanout", "server/internal/queue/qlog", "server/internal/queue/consume",
			"server/internal/presence", "server/internal/cluster",
			"server/internal/erasure", "server/internal/session", "server/internal/revocation", "server/internal/apikey", "server/internal/lifecycle",
			"server/internal/store/redisscript", "internal/gen/parley/cluster/",
		},
		never: []string{"connectrpc.com/", module + "server/config", module + "server/internal/rpc"},
	},
	{
		name:     "the transport knows the domain",
		packages: []string{"server/internal/rpc/"},
		imports: []string{
			"gen/", "server/internal/rpc/", "server/internal/message", "server/internal/channel", "server/internal/fault",
			"server/internal/ident", "server/internal/fanout", "server/internal/presence",
			"server/internal/queue/consume", "server/internal/queue/dispatch", "server/internal/queue/qlog", "server/internal/queue/topics", "server/internal/queue/produce", "server/internal/queue/inspect", "server/internal/pagetoken", "server/internal/stream", "server/internal/telemetry", "server/internal/lifecycle",
			"server/internal/unread", "server/internal/erasure", "server/internal/session", "server/internal/revocation",
			"server/internal/apikey",
		},
		never: []string{
			"go.mongodb.org/", "github.com/redis/", "github.com/nats-io/", "github.com/cockroachdb/", module + "server/config",
		},
	},
	{
		name:     "the page's server knows no page",
		packages: []string{"server/internal/page/"},
		never:    outside,
	},
	{
		name:     "configuration knows nobody",
		packages: []string{"server/config/"},
	},
	{
		name:     "telemetry",
		packages: []string{"server/internal/telemetry/"},
		imports:  []string{"server/internal/ident", "server/internal/fault"},
	},
	{
		name:     "commands build a server and run it",
		packages: []string{"server/cmd/"},
		imports:  []string{"server", "server/config", "internal/program"},
	},
	{
		name:     "an SDK's users compile no server",
		packages: []string{"sdk/go/"},
		except:   []string{"sdk/go/parleytest"},
		imports:  []string{"gen/", "sdk/go", "sdk/go/internal/"},
		never:    []string{module + "server"},
	},
	{
		name:     "the built page is files",
		packages: []string{"clients/pages/"},
		never:    []string{module + "sdk/", module + "gen/", module + "server"},
	},
	{
		name:     "clients use the SDK, and no store or driver makes them large",
		packages: []string{"clients/"},
		imports:  []string{"sdk/go/", "gen/", "clients/", "internal/access", "internal/program"},
		never: []string{
			module + "server", module + "bench", "go.mongodb.org/", "github.com/redis/", "github.com/nats-io/", "github.com/cockroachdb/",
		},
	},
	{
		name:     "the bench uses the SDK, and drivers for its floors",
		packages: []string{"bench/"},
		imports:  []string{"sdk/go/", "gen/", "bench", "internal/access", "internal/program"},
		never:    []string{module + "server", module + "clients/"},
	},
	{
		name:     "what programs share",
		packages: []string{"internal/access/", "internal/program/"},
		never:    append([]string{module + "server", module + "sdk/"}, outside...),
	},
	{
		name:     "the rig runs binaries and knows none of them from inside",
		packages: []string{"internal/rig/"},
		never:    []string{module + "server", module + "gen/", module + "sdk/"},
	},
	{
		name:     "the fault harnesses are users",
		packages: []string{"chaos/"},
		imports:  []string{"sdk/go/", "gen/", "internal/gen/", "internal/rig", "internal/mutation", "chaos/"},
		never:    []string{module + "server"},
	},
	{
		name:     "the core of the fault harnesses knows none of them",
		packages: []string{"chaos"},
		imports:  []string{"sdk/go/", "gen/", "internal/rig", "internal/mutation"},
	},
	{
		name:     "a fault harness knows the core and no other harness",
		packages: []string{"chaos/messages/", "chaos/queues/", "chaos/presence/"},
		imports:  []string{"sdk/go/", "gen/", "internal/gen/", "internal/rig", "chaos"},
	},
}

// forTests are packages that only tests may import, by import path, with all below them. No binary
// may contain them. They may import each other.
var forTests = []string{
	module + "server/internal/testkit", module + "server/internal/cluster/clustertest", module + "server/internal/store/storetest",
	module + "server/internal/lifecycle/lifecycletest", module + "server/internal/revocation/revocationtest", module + "server/internal/apikey/apikeytest", module + "server/servertest",
	module + "sdk/go/parleytest", module + "server/internal/store/redisscript/scripttest", module + "chaos/internal/chaostest",
	module + "hack/internal/logtest",
	"testing", "github.com/google/go-cmp/", "go.uber.org/goleak", "pgregory.net/rapid",
}

// pkg is the output of `go list` for a package: its imports and all its dependencies, without those
// of tests.
type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

// list returns the repository's packages by path relative to the module.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	packages := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

// TestLayering checks every package against layers.
func TestLayering(t *testing.T) {
	t.Parallel()
	packages := list(t)
	free := make(map[string]bool) // the server's packages that no rule binds
	for name, p := range packages {
		free[name] = strings.HasPrefix(name, "server/internal/") && !isForTests(p.ImportPath)
	}
	for _, l := range layers {
		bound := 0
		for name, p := range packages {
			if !within(name, l.packages) || within(name, l.except) {
				continue
			}
			bound++
			free[name] = false
			l.check(t, name, p)
		}
		if bound == 0 && !l.later {
			t.Errorf("%s: no package matches %q: the rule binds nothing", l.name, l.packages)
		}
	}
	for name, is := range free {
		if is {
			t.Errorf("no rule binds %s: add it to layers", name)
		}
	}
}

func (l layer) check(t *testing.T, name string, p pkg) {
	t.Helper()
	for _, imported := range p.Imports {
		ours, ok := strings.CutPrefix(imported, module)
		if ok && !within(ours, l.imports) && !strings.HasPrefix(ours, name+"/") {
			t.Errorf("%s: %s imports %s", l.name, name, ours)
		}
	}
	for _, dep := range p.Deps {
		if i := slices.IndexFunc(l.never, func(n string) bool { return strings.HasPrefix(dep, n) }); i >= 0 {
			t.Errorf("%s: %s is built from %s", l.name, name, dep)
		}
	}
}

// TestNoTestCodeInProduction checks that no binary contains code that only tests need.
func TestNoTestCodeInProduction(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if isForTests(p.ImportPath) {
			continue
		}
		for _, dep := range p.Deps {
			if isForTests(dep) {
				t.Errorf("%s is built from %s", name, dep)
			}
		}
	}
}

// isForTests reports whether the package is one of forTests or below one.
func isForTests(importPath string) bool {
	return slices.ContainsFunc(forTests, func(f string) bool {
		f = strings.TrimSuffix(f, "/")
		return importPath == f || strings.HasPrefix(importPath, f+"/")
	})
}

// within reports whether the package is in the set: named by it, or below an entry that ends in a
// slash.
func within(name string, set []string) bool {
	return slices.ContainsFunc(set, func(s string) bool {
		return name == path.Clean(s) || strings.HasSuffix(s, "/") && strings.HasPrefix(name, s)
	})
}
