package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lock: %v", err)
	}
	waited := 0
	next, err := Lock(t.Context(), path, func() {
		if waited++; waited == 2 {
			l.Unlock()
		}
	})
	if err != nil || waited != 2 {
		t.Fatalf("after %d waits: %v", waited, err)
	}
	defer next.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
}

func TestKilledHolderGivesTheLockBack(t *testing.T) {
	if path := os.Getenv("FILELOCK_HOLD"); path != "" {
		if _, err := TryLock(path); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		select {}
	}
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledHolderGivesTheLockBack$")
	cmd.Env = append(os.Environ(), "FILELOCK_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("while held: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	l, err := TryLock(path)
	if err != nil {
		t.Fatalf("after the holder's death: %v", err)
	}
	l.Unlock()
}
