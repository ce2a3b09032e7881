//go:build !linux

package childproc

import "os/exec"

func setAttributes(*exec.Cmd) {}
