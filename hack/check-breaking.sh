#!/bin/sh
# check-breaking.sh AGAINST BUF...: fails if the protos break a client of an earlier state of the
# API: of the baseline proto/v1.binpb, of the main branch's baseline, of the newest release tag
# (v*), and of the git revision AGAINST unless it is empty. States that git does not have, as in a
# shallow clone, are not compared. The baseline proto/v1.binpb always is.
#
# buf.yaml excludes the queues until the release with their second design.
set -eu
cd "$(dirname "$0")/.."
against=$1
shift
baseline=proto/v1.binpb

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

compare() { # compare IMAGE NAME BUF...
	image=$1
	name=$2
	shift 2
	"$@" breaking proto --against "$image"
	echo "check-breaking: breaks no client of $name"
}

revision() { # revision REVISION BUF...
	rev=$1
	shift
	# Extract the revision's files first: buf's git input supports neither remote branches nor
	# linked work trees.
	mkdir "$tmp/revision"
	git archive "$rev" proto buf.yaml buf.lock | tar -x -C "$tmp/revision"
	"$@" build "$tmp/revision/proto" -o "$tmp/revision.binpb"
	rm -r "$tmp/revision"
	compare "$tmp/revision.binpb" "$rev ($(git rev-parse --short "$rev^{commit}"))" "$@"
}

echo "check-breaking: admin.proto, admin_queue.proto and queue.proto are not compared: docs/stability.md"
compare "$baseline" "$baseline" "$@"

for rev in refs/remotes/origin/main refs/heads/main; do
	git cat-file -e "$rev:$baseline" 2>/dev/null || continue
	git cat-file blob "$rev:$baseline" >"$tmp/main.binpb"
	cmp -s "$baseline" "$tmp/main.binpb" || compare "$tmp/main.binpb" "$baseline of $rev" "$@"
	break
done
tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
[ -z "$tag" ] || revision "$tag" "$@"
[ -z "$against" ] || revision "$against" "$@"
