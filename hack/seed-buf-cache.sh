#!/bin/sh
# Copies validate.proto from its Go module to buf's cache as the pinned dependency, so that buf
# needs no network. buf checks the digest in buf.lock.
set -eu
VERSION=v1.1.0
COMMIT=2a1774d888024a9b93ce7eb4b59f6a83
cache=${BUF_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/buf}
dst=$cache/v3/modules/b5/buf.build/bufbuild/protovalidate/$COMMIT
[ -f "$dst/module.yaml" ] && exit 0
src=$(go mod download -json "github.com/bufbuild/protovalidate@$VERSION" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
mkdir -p "$dst/files/buf/validate"
install -m 644 "$src/proto/protovalidate/buf/validate/validate.proto" "$dst/files/buf/validate/validate.proto"
install -m 644 "$src/LICENSE" "$src/README.md" "$dst/files/"
printf 'version: v1\nfiles_dir: files\n' > "$dst/module.yaml"
