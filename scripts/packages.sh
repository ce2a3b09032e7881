#!/usr/bin/env bash
# Makes sure that the programs that builds and tests need are there. Missing ones
# are installed with apt-get where this runs as root; elsewhere they are named.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # PROGRAM DEBIAN-PACKAGE
  if ! command -v "$1" >/dev/null; then missing+=("$2"); fi
}

need java default-jre-headless # the Kafka broker of the tests
need mvn maven                 # fetches its jars
if grep -rqs --include='*_test.go' --include='*.go' -e '"redis-server"' .; then
  need redis-server redis-server # the Redis of the tests
fi

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "These are missing, by the names of their Debian packages: ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null </dev/null
