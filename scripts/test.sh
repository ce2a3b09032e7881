#!/usr/bin/env bash
# Runs the tests of every package, and prints their events as JSON for
# gotestsum. $PKG are the packages (default ./...); with RACE=1 they run under
# the race detector; the arguments go to go test.
#
# Packages that start servers run after the others, two at a time, since they
# mostly wait; whole systems and what they measure have the machine to themselves.
set -uo pipefail
cd "$(dirname "$0")/.."

pkg=${PKG:-./...}
status=0
if [ -n "${RACE:-}" ]; then set -- -race "$@"; fi

# run hides what isn't JSON and isn't an error: gotestsum takes each line of
# standard error for one.
run() { # DIR ARGS...
  local dir=$1
  shift
  cd "$dir" || return
  go test -json -count=1 -timeout 45m "$@" 2> >(grep --line-buffered -v '^go: downloading ' >&2) || status=1
  cd "$OLDPWD" || exit 1
}

# A package's test binary shows what it starts by what it imports; acceptance
# tests start whole systems as processes.
all=$(go list $pkg) || exit 1
servers=$(go list -test -f '{{if .ForTest}}{{$p := .ForTest}}{{range .Deps}}{{if eq . "github.com/laneway/laneway/internal/testservers"}}{{$p}}{{"\n"}}{{end}}{{end}}{{end}}' $pkg |
  cat - <(echo "$all" | grep -E '/internal/(testservers|localtemporal)$|/acceptance(/|$)') | sort -u | comm -12 - <(echo "$all" | sort))
others=$(comm -23 <(echo "$all" | sort) <(echo "$servers"))

if [ -n "$others" ]; then run . "$@" $others; fi
systems=$(grep -E '/acceptance$' <<<"$servers" || true)
servers=$(grep -vE '/acceptance$' <<<"$servers" || true)
if [ -n "$systems" ]; then run . "$@" $systems; fi
if [ -n "$servers" ]; then run . -p 2 "$@" $servers; fi
# The nested modules have tests of their own.
if [ "$pkg" = ./... ]; then
  for mod in $(git ls-files -co --exclude-standard '*/go.mod'); do
    run "$(dirname "$mod")" "$@" ./...
  done
fi
exit $status
