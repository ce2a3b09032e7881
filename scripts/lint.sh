#!/usr/bin/env bash
# Checks the code: format, correctness, determinism of workflows, protobuf files,
# known vulnerabilities. Every check runs; the last line names those that failed.
set -uo pipefail
cd "$(dirname "$0")/.."

scripts/tools.sh install gofumpt golangci-lint workflowcheck govulncheck buf protoc-gen-go protoc-gen-connect-go || exit 1
vulndb=$(scripts/tools.sh vulndb) || exit 1
PATH=$(scripts/tools.sh dir):$PATH

failed=()
check() { # NAME COMMAND...
  local began=$SECONDS name=$1
  shift
  if "$@"; then
    echo "lint: $name ok ($((SECONDS - began))s)"
  else
    echo "lint: $name FAILED ($((SECONDS - began))s)"
    failed+=("$name")
  fi
}

format() {
  local files
  files=$(gofumpt -l .) || return 1
  if [ -n "$files" ]; then
    printf 'not formatted, run gofumpt -w on:\n%s\n' "$files"
    return 1
  fi
}

vet() { go vet ./...; }
vet_nested() { go vet -C deploy/temporal ./...; }

# It reads the workflows that are registered, and all that they call.
determinism() {
  if [ -d workflows ]; then workflowcheck -config .workflowcheck.yaml ./workflows/...; fi
}

# What is committed is what make generate makes.
generated() {
  local tmp status=0 file
  tmp=$(mktemp -d) || return 1
  buf generate -o "$tmp" || status=1
  for file in $(git ls-files 'api/*.pb.go' 'api/*.connect.go'); do
    cmp "$file" "$tmp/$file" || status=1
  done
  rm -rf "$tmp"
  return $status
}

vulnerabilities() {
  govulncheck -db "file://$vulndb" -format json ./... | go run ./tools/vulncheck tools/vulncheck/allowed.txt
}

check format format
check vet vet
check "vet deploy/temporal" vet_nested
check golangci-lint golangci-lint run ./...
check workflowcheck determinism
check buf buf lint
check "generated code" generated
check govulncheck vulnerabilities

if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: all ok"
