#!/bin/sh
# check-modules.sh: fails unless a release of this tree would work as Go modules: a program that
# imports only the SDK must build and have few modules, and `go install` must build the server. Both
# come from a module proxy in a directory, created from a copy of the tree. Everything that Go
# fetches for them goes into a module cache of their own.
set -eu
cd "$(dirname "$0")/.."
ours=github.com/parleyhq/parley
version=v0.0.0-check
# The maximum number of modules of a program that imports the SDK, itself included.
limit=20

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
hack/copy-tree.sh "$tmp/tree"
export GOWORK=off
go run -C tools ./release -proxy "$tmp/proxy" "$tmp/tree" "$version"

# The machine's module cache also serves as a proxy, so that nothing is fetched twice.
GOPROXY="file://$tmp/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
GONOSUMDB="$ours,$(go env GONOSUMDB)"
GOFLAGS="$(go env GOFLAGS) -modcacherw"
GOMODCACHE=$tmp/cache
export GOPROXY GONOSUMDB GOFLAGS GOMODCACHE

quiet() { # quiet COMMAND...: runs it, and shows what it prints only if it fails
	"$@" >"$tmp/log" 2>&1 || {
		cat "$tmp/log" >&2
		exit 1
	}
}

mkdir "$tmp/consumer"
cd "$tmp/consumer"
cat >go.mod <<END
module example.com/consumer

go $(sed -n 's/^go //p' "$tmp/tree/sdk/go/go.mod")
END
cat >main.go <<END
package main

import (
	"context"
	"log"

	parley "$ours/sdk/go"
)

func main() {
	c, err := parley.New("localhost:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Send(context.Background(), "room", "hello"); err != nil {
		log.Print(err)
	}
}
END
cp "$tmp/tree/sdk/go/go.sum" .
quiet go get "$ours/sdk/go@$version"
quiet go mod tidy
quiet go build -o /dev/null .
go list -m all >modules
count=$(wc -l <modules)
if [ "$count" -gt "$limit" ] || grep -q '^google.golang.org/grpc ' modules; then
	cat modules >&2
	echo "check-modules: a program that imports only the SDK has $count modules: at most $limit, and no grpc" >&2
	exit 1
fi
echo "check-modules: a program that imports only the SDK has $count modules"

cd "$tmp"
# The same flags as in the Dockerfile. -trimpath also lets the next run, whose module cache is
# elsewhere, use the build cache.
export CGO_ENABLED=0 GOBIN="$tmp/bin"
quiet go install -trimpath "$ours/server/cmd/parleyd@$version"
quiet bin/parleyd --version
echo "check-modules: go install makes the server"
