package interop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// python returns the client that is a Python program on grpcio. Plain protoc generates its
// messages, grpcio's protoc its stubs.
func python() client {
	return client{name: "grpcio", both: true, checks: true, slow: true, see: func(t *testing.T, to target, name string) report {
		packages, gen := fetched(t, ".cache/python/interop"), t.TempDir()
		protoc(t, "--python_out="+gen, "--pyi_out="+gen)
		dir, protos := bundle(t)
		args := append([]string{"-m", "grpc_tools.protoc", "-I", ".", "--grpc_python_out=" + gen}, protos...)
		command(t, dir, []string{"PYTHONPATH=" + packages}, "python3", args...)
		// so that Python writes no bytecode caches into the repository
		env := []string{"PYTHONPATH=" + packages + string(os.PathListSeparator) + gen, "PYTHONDONTWRITEBYTECODE=1"}
		return program(t, to, name, root(), env, "python3", "interop/python/client.py")
	}}
}

// nodes returns one client for each transport of connect-es in Node. All run the same program.
func nodes() []client {
	var all []client
	for kind, both := range map[string]bool{
		// Browsers and HTTP/1.1 have no bidirectional streams.
		"web connect": false, "web grpc-web": false, "node connect http/1.1": false,
		"node connect": true, "node grpc": true, "node grpc-web": true,
	} {
		all = append(all, client{name: "connect-es " + kind, both: both, slow: true, see: func(t *testing.T, to target, name string) report {
			// Node looks modules up beside the importing file, and the generated files must not be in the
			// repository, so the program is copied.
			dir, packages := t.TempDir(), fetched(t, "interop/node/node_modules")
			for _, file := range []string{"package.json", "client.js"} {
				text, err := os.ReadFile(filepath.Join("node", file))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			gen := filepath.Join(dir, "gen")
			if err := os.Mkdir(gen, 0o700); err != nil {
				t.Fatal(err)
			}
			plugin := "--plugin=" + filepath.Join(packages, ".bin", "protoc-gen-es")
			protoc(t, plugin, "--es_out="+gen, "--es_opt=target=js,import_extension=js")
			return program(t, to, name, dir, nil, "node", "client.js", kind)
		}})
	}
	return all
}

// java returns the client that is a Java program on grpc-java. It builds its requests with the
// builders that protoc generates for Kotlin.
func java() client {
	return client{name: "grpc-java", both: true, checks: true, slow: true, see: func(t *testing.T, to target, name string) report {
		fetched(t, ".cache/interop/pom.xml")
		gen, build := t.TempDir(), t.TempDir()
		for _, dir := range []string{"java", "kotlin", "grpc"} {
			if err := os.Mkdir(filepath.Join(gen, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		plugin := "--plugin=" + fetched(t, ".cache/interop/bin/protoc-gen-grpc-java")
		protoc(t, "--java_out="+gen+"/java", "--kotlin_out="+gen+"/kotlin", plugin, "--grpc-java_out="+gen+"/grpc")
		// These options disable the optimizing compiler, which does not pay off in a build of half a
		// minute.
		env := []string{"MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
		command(t, root(), env, "mvn", "-B", "-q", "-o", "-f", "interop/java/pom.xml", "process-classes", "-Dgenerated="+gen, "-Dbuild="+build)
		path := strings.Join([]string{build + "/classes", build + "/lib/*"}, string(os.PathListSeparator))
		return program(t, to, name, root(), nil, "java", "-cp", path, "dev.parley.interop.Client")
	}}
}

// protoc runs plain protoc on the bundle.
func protoc(t *testing.T, args ...string) {
	t.Helper()
	dir, protos := bundle(t)
	command(t, dir, nil, fetched(t, ".cache/interop/bin/protoc"), append(append([]string{"-I", "."}, args...), protos...)...)
}
