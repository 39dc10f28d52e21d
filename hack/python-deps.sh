#!/bin/sh
# python-deps.sh NAME REQUIREMENTS: installs the Python packages of the file REQUIREMENTS in
# .cache/python/NAME, for use as PYTHONPATH. Installed packages are not changed, so a second run
# needs no network. Python 3.11 or newer with pip must be on the PATH.
set -eu
cd "$(dirname "$0")/.."
dir=.cache/python/$1
cmp -s "$2" "$dir/requirements.txt" && exit 0

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	echo "python-deps: Python 3.11 or newer must be on the PATH" >&2
	exit 1
fi
if ! python3 -m pip --version >/dev/null 2>&1; then
	echo "python-deps: Python needs pip" >&2
	exit 1
fi
rm -rf "$dir"
mkdir -p .cache/python
tmp=$(mktemp -d .cache/python/fetch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary :all: --target "$tmp/packages" -r "$2"
cp "$2" "$tmp/packages/requirements.txt"
mv "$tmp/packages" "$dir"
