#!/bin/sh
# tidy.sh [-diff]: runs `go mod tidy` in every module. With -diff it changes nothing and fails if a
# module is not tidy. Our own modules come from this tree, as in go.work, and not from the version
# in the go.mod files, which may lack packages that this tree imports. The lines of go.sum for our
# modules belong to that version, so they are not changed. Without -diff it also creates go.work.sum
# anew.
set -eu
cd "$(dirname "$0")/.."
tree=$PWD
ours=github.com/parleyhq/parley
export GOWORK=off

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=
for dir in . gen/go sdk/go tools tools/lint hack/rivals/asynq; do
	cp "$dir/go.mod" "$dir/go.sum" "$tmp"
	for other in gen/go sdk/go; do
		! grep -q "$ours/$other v" "$dir/go.mod" || go mod edit -replace="$ours/$other=$tree/$other" "$tmp/go.mod"
	done
	(cd "$dir" && go mod tidy -modfile="$tmp/go.mod")
	go mod edit -dropreplace="$ours/gen/go" -dropreplace="$ours/sdk/go" "$tmp/go.mod"
	{ grep "^$ours/" "$dir/go.sum" || true; grep -v "^$ours/" "$tmp/go.sum"; } | LC_ALL=C sort -s -k1,1 >"$tmp/sum"
	mv "$tmp/sum" "$tmp/go.sum"
	for file in go.mod go.sum; do
		if [ "${1:-}" != -diff ]; then
			cmp -s "$tmp/$file" "$dir/$file" || cp "$tmp/$file" "$dir/$file"
		elif ! diff -u "$dir/$file" "$tmp/$file"; then
			failed="$failed $dir/$file"
		fi
	done
done
if [ -n "$failed" ]; then
	echo "tidy: not tidy:$failed: run make tidy and commit what it changes" >&2
	exit 1
fi
[ "${1:-}" = -diff ] || {
	rm -f go.work.sum
	GOWORK=$tree/go.work go mod download
}
