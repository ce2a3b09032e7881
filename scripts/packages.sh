#!/usr/bin/env bash
# Makes sure that the programs that builds and tests need are there. Missing ones
# are installed with apt-get where this runs as root; elsewhere they are named.
# With the word race it includes what the race detector needs; with the word redis
# or cql it is about that server alone.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # PROGRAM DEBIAN-PACKAGE
  if ! command -v "$1" >/dev/null; then missing+=("$2"); fi
}

if [ "${1:-}" != redis ]; then
  need java default-jre-headless # the Kafka broker and the Cassandra of the tests
  need mvn maven                 # fetches their jars
fi
if [ "${1:-}" != cql ]; then
  need redis-server redis-server
fi
if [ "${1:-}" = race ]; then
  need "$(go env CC)" gcc # links its runtime, which is C
  need ld binutils
  # Without the headers of libc a compiler is of no use.
  if [ "$(uname)" = Linux ] && [ ! -e /usr/include/stdlib.h ]; then missing+=(libc6-dev); fi
fi

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "These are missing, by the names of their Debian packages: ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# The tests start servers of their own: none is to run as a service.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null </dev/null
case " ${missing[*]} " in *" redis-server "*)
  # Nor after the next boot.
  if command -v systemctl >/dev/null; then systemctl disable -q redis-server || true; fi ;;
esac
