#!/bin/sh
# release.sh VERSION: writes VERSION to go.work and to every go.mod that requires another of our
# modules, and the checksums of those modules to its go.sum. It commits nothing: it prints the
# commands that remain to be run. See CONTRIBUTING.md.
set -eu
cd "$(dirname "$0")/.."
version=$1

if [ -n "$(git status --porcelain)" ]; then
	echo "release: the working tree has changes: commit them first, the sums are those of the files of a commit" >&2
	exit 1
fi
if git rev-parse -q --verify "refs/tags/$version" >/dev/null; then
	echo "release: there is a tag $version" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
hack/copy-tree.sh "$tmp/tree"
GOWORK=off go run -C tools ./release "$tmp/tree" "$version"
for file in go.work go.mod go.sum sdk/go/go.mod sdk/go/go.sum; do
	cp "$tmp/tree/$file" "$file"
done
cat <<END
The modules require each other by $version. Commit this without any other change, tag the commit, and push all at once:
  git commit -am 'release $version'
  git tag $version && git tag gen/go/$version && git tag sdk/go/$version
  git push --atomic origin HEAD $version gen/go/$version sdk/go/$version
END
