//go:build !linux

package childproc

import "os/exec"

func setAttributes(*exec.Cmd) {}

// lowerThread does nothing here: priorities are not per thread.
func lowerThread(int) {}
