package childproc

import (
	"os/exec"
	"syscall"
)

func setAttributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lowerThread lowers the priority of the calling thread. One that cannot be
// lowered runs as it is.
func lowerThread(nice int) { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice) }
