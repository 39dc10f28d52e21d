#!/bin/sh
# check-breaking.sh AGAINST BUF...: fails if the protos would break a client built from the revision AGAINST; if that is
# empty, from the main branch, as the remote has it where there is one, and also from the newest release tag (v*) on the
# way to it. Where the main branch holds no protos yet, there is no client to break.
#
# The revision's files are taken out of git first, because buf's own git input knows neither remote branches nor linked
# work trees.
set -eu
cd "$(dirname "$0")/.."
against=$1
shift

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

compare() { # compare REVISION BUF...
	rev=$1
	shift
	if ! git cat-file -e "$rev:buf.yaml" 2>/dev/null || ! git cat-file -e "$rev:proto" 2>/dev/null; then
		echo "check-breaking: $rev holds no protos: nothing to break"
		return
	fi
	dir=$tmp/$(git rev-parse --verify --quiet "$rev^{commit}")
	mkdir -p "$dir"
	git archive "$rev" proto buf.yaml buf.lock | tar -x -C "$dir"
	"$@" breaking --against "$dir"
	echo "check-breaking: breaks no client of $rev ($(git rev-parse --short "$rev"))"
}

if [ -z "$against" ]; then
	for rev in refs/remotes/origin/main refs/heads/main; do
		git rev-parse --verify --quiet "$rev^{commit}" >/dev/null && against=$rev && break
	done
	if [ -z "$against" ]; then
		echo "check-breaking: there is no main branch to compare with: name a revision with AGAINST=" >&2
		exit 1
	fi
	tag=$(git describe --tags --abbrev=0 --match 'v*' "$against" 2>/dev/null || true)
	[ -z "$tag" ] || compare "$tag" "$@"
fi
compare "$against" "$@"
