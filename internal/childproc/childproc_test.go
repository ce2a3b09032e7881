package childproc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopIsPoliteFirst(t *testing.T) {
	p, lines := start(t, `trap 'echo bye; exit 0' TERM; echo up; while :; do read -t 1 x; done`)
	<-lines
	if err := p.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "bye" {
		t.Errorf("the child said %q", got)
	}
	if p.Err() != nil {
		t.Errorf("a stopped child ended with %v", p.Err())
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

func TestStopKillsTheStubborn(t *testing.T) {
	p, lines := start(t, `trap '' TERM; echo up; while :; do read -t 1 x; done`)
	<-lines
	if err := p.Stop(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	gone(t, p.Pid())
}

func TestErrTellsOfACrash(t *testing.T) {
	p, _ := start(t, `exit 3`)
	<-p.Done()
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v", p.Err())
	}
}

func TestStartNothing(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program")); err == nil {
		t.Error("started nothing")
	}
}

// TestNothingOutlivesAKilledParent starts a parent that starts a child, kills
// the parent with SIGKILL, and expects the child's end too.
func TestNothingOutlivesAKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the child of a killed parent")
	}
	if os.Getenv("CHILDPROC_PARENT") != "" {
		p, err := Start(exec.Command("sleep", "60"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child=%d\n", p.Pid())
		<-p.Done()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlivesAKilledParent$")
	cmd.Env = append(os.Environ(), "CHILDPROC_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "child=")))
	if err != nil {
		t.Fatalf("the parent said %q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, child)
}

func start(t *testing.T, script string) (*Process, <-chan string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	// A pipe without a writer, so that the script's read waits.
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = in
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		in.Close()
		hold.Close()
		r.Close()
	})
	return p, lines
}

// gone waits for the end of a process, which a zombie has reached too.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("process %d is still there", pid)
}
