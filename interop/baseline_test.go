package interop_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBaseline removes one element of the protos at a time. hack/check-breaking.sh and
// hack/move-baseline.sh must fail for elements of the stable API, and pass for those of queues.
func TestBaseline(t *testing.T) {
	t.Parallel()
	const file = "proto/parley/v1/"
	for name, c := range map[string]struct {
		// file loses its text from the first match of begin to the next match of end, both inclusive.
		// With an empty end it loses begin only.
		file, begin, end string
		// finding is part of the scripts' error output. If it is empty, the scripts must succeed.
		finding string
	}{
		"a field of a channel": {
			file: file + "channel.proto", begin: "  bool members_only = 2;\n",
			finding: `field "2" with name "members_only" on message "ChannelInfo" was deleted`,
		},
		"a field of a topic":    {file: file + "admin_queue.proto", begin: "  bool drop_oldest = 6;\n"},
		"a field of a delivery": {file: file + "queue.proto", begin: "  int32 attempt = 7;\n"},
		"a call for queues":     {file: file + "admin.proto", begin: "  rpc SetTopicPaused(", end: "}\n"},
		"a field of a call of the server": {
			file: file + "server.proto", begin: "  ServerLimits limits = 2;\n", finding: `on message "GetServerInfoResponse" was deleted`,
		},
		"a call's idempotency": {
			file: file + "server.proto", begin: "    option idempotency_level = NO_SIDE_EFFECTS;\n", finding: "GetServerInfo",
		},
		"a call for messages": {
			file: file + "message.proto", begin: "  rpc SendTyping(", end: ";\n", finding: `RPC "SendTyping" on service "MessageService" was deleted`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			copyTree(t, dir, "buf.yaml", "buf.lock", "proto", "internal/proto", "hack/check-breaking.sh", "hack/move-baseline.sh")
			baseline := filepath.Join(dir, "proto", "v1.binpb")
			if err := os.Remove(baseline); err != nil {
				t.Fatal(err)
			}
			script(t, dir, "", "hack/move-baseline.sh")
			before := read(t, baseline)

			changed := filepath.Join(dir, c.file)
			head, tail, ok := strings.Cut(string(read(t, changed)), c.begin)
			if ok && c.end != "" {
				_, tail, ok = strings.Cut(tail, c.end)
			}
			if !ok {
				t.Fatalf("nothing to change in %s", c.file)
			}
			if err := os.WriteFile(changed, []byte(head+tail), 0o600); err != nil {
				t.Fatal(err)
			}
			out := script(t, dir, c.finding, "hack/check-breaking.sh", "")
			if !strings.Contains(out, "admin_queue.proto and queue.proto are not compared") {
				t.Errorf("it does not say what it leaves out:\n%s", out)
			}
			script(t, dir, c.finding, "hack/move-baseline.sh")
			if moved := !bytes.Equal(before, read(t, baseline)); moved != (c.finding == "") {
				t.Errorf("the baseline moved: %t", moved)
			}
		})
	}
}

// script runs a script of dir with the path of buf as its last argument, and returns its output.
// The script must fail and print finding or, if that is empty, succeed.
func script(t *testing.T, dir, finding, name string, args ...string) string {
	t.Helper()
	path, err := tools["buf"]()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := seeded()
	if err != nil {
		t.Fatal(err)
	}
	// Git must not find a repository around the copy.
	env := []string{cache, "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
	out, err := execute(dir, env, filepath.Join(dir, name), append(args, path)...)
	if finding == "" {
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err == nil {
		t.Fatalf("%s found nothing, not %q", name, finding)
	}
	if !strings.Contains(err.Error(), finding) {
		t.Fatalf("%s found no %q: %v", name, finding, err)
	}
	return err.Error()
}

// copyTree copies files and folders of this repository to dir, with the same relative paths.
func copyTree(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(root(), name), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			to := filepath.Join(dir, strings.TrimPrefix(path, root()))
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			return os.WriteFile(to, read(t, path), 0o700)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
