#!/usr/bin/env bash
# Builds the development tools once, each from its own version, and keeps them
# in the cache ($LANEWAY_CACHE, or "laneway" in the user's cache directory).
#
#   scripts/tools.sh install [TOOL...]   build what is missing; all without names
#   scripts/tools.sh dir                 print the folder to put on the PATH
#   scripts/tools.sh list                print each tool and its version
#   scripts/tools.sh vulndb              print the vulnerability database's folder, made if missing
set -euo pipefail

# Those that `make generate` needs come first.
tools() {
  cat <<'T'
protoc-gen-go v1.36.12 google.golang.org/protobuf/cmd/protoc-gen-go
protoc-gen-connect-go v1.21.1 connectrpc.com/connect/cmd/protoc-gen-connect-go
buf v1.75.0 github.com/bufbuild/buf/cmd/buf
gotestsum v1.13.0 gotest.tools/gotestsum
gofumpt v0.12.0 mvdan.cc/gofumpt
workflowcheck v0.6.0 go.temporal.io/sdk/contrib/tools/workflowcheck
govulncheck v1.9.0 golang.org/x/vuln/cmd/govulncheck
benchstat v0.0.0-20260908200009-22c9c6c9d4da golang.org/x/perf/cmd/benchstat
golangci-lint v2.15.0 github.com/golangci/golangci-lint/v2/cmd/golangci-lint
T
}

vulndb_module=golang.org/x/vulndb
vulndb_version=v0.0.0-20261105234957-e22db6528018

say() { echo "tools: $*" >&2; }

cache_dir() {
  if [ -n "${LANEWAY_CACHE:-}" ]; then
    mkdir -p "$LANEWAY_CACHE" && (cd "$LANEWAY_CACHE" && pwd)
  elif [ "$(uname)" = Darwin ]; then
    echo "$HOME/Library/Caches/laneway"
  else
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/laneway"
  fi
}

# A tool analyses code with the Go that built it, so each Go has its own tools.
root=$(cache_dir)/tools/$(go env GOVERSION)
# The folder's name depends on the versions: an old checkout keeps its tools.
bin=$root/bin-$(tools | cksum | cut -d' ' -f1)

# locked runs a command while no other process runs one.
locked() {
  mkdir -p "$root"
  if command -v flock >/dev/null; then
    (flock -n 9 || { say "another process builds tools; waiting for it"; flock 9; }; "$@") 9>"$root/.lock"
  else
    "$@"
  fi
}

install() {
  mkdir -p "$bin"
  local wanted=" $* " name version package missing=() n=0
  while read -r name version package; do
    if [ $# -gt 0 ] && [[ $wanted != *" $name "* ]]; then continue; fi
    if [ ! -x "$root/$name@$version/$name" ]; then missing+=("$name $version $package"); fi
    ln -sfn "../$name@$version/$name" "$bin/$name"
  done < <(tools)
  for entry in "${missing[@]}"; do
    read -r name version package <<<"$entry"
    n=$((n + 1))
    build "$n/${#missing[@]}" "$name" "$version" "$package"
  done
}

# follow says every 20 seconds how far a build is, instead of each of its lines.
# Lines that are neither a download nor a package's name are errors: they stay.
follow() {
  local line modules=0 packages=0 last=$SECONDS
  while IFS= read -r line; do
    case $line in
      "go: downloading "*) modules=$((modules + 1)) ;;
      *" "* | "#"*) echo "$line" ;;
      *) packages=$((packages + 1)) ;;
    esac
    if [ $((SECONDS - last)) -ge 20 ]; then
      last=$SECONDS
      say "$1: $modules modules downloaded, $packages packages compiled"
    fi
  done
}

build() {
  local began=$SECONDS step=$1 name=$2 version=$3 package=$4 tmp=$root/.building-$2
  say "[$step] building $name $version"
  rm -rf "$tmp" && mkdir -p "$tmp"
  # Outside of any module, so that the tool's own go.mod decides.
  (cd "$tmp" && GOFLAGS=-buildvcs=false GOWORK=off GOBIN=$tmp go install -v "$package@$version") 2> >(follow "[$step] $name" >&2)
  rm -rf "${root:?}/$name@$version" && mv "$tmp" "$root/$name@$version"
  say "[$step] $name done in $((SECONDS - began))s"
}

vulndb() {
  local out=$root/../vulndb-$vulndb_version began=$SECONDS source
  if [ ! -f "$out/index/db.json" ] && [ ! -f "$out/index/db.json.gz" ]; then
    say "making the vulnerability database $vulndb_version"
    source=$(cd "$root" && go mod download -json "$vulndb_module@$vulndb_version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    rm -rf "$out.tmp"
    (cd "$source" && GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off go run ./cmd/indexdb -vulns data/osv -out "$out.tmp") >&2
    rm -rf "$out" && mv "$out.tmp" "$out"
    say "vulnerability database done in $((SECONDS - began))s"
  fi
  (cd "$out" && pwd)
}

case ${1:-} in
  install) shift; locked install "$@" ;;
  dir) echo "$bin" ;;
  list) tools | cut -d' ' -f1,2 ;;
  vulndb) locked vulndb ;;
  *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
