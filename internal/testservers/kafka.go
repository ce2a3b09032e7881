package testservers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/laneway/laneway/internal/childproc"
	"github.com/laneway/laneway/internal/freeport"
)

const (
	// kafkaClusterID is any fixed id: there is one broker.
	kafkaClusterID = "MkU3OEVBNTcwNTJENDM2Qg"
	// kafkaReady is what the broker logs once it serves.
	kafkaReady = "Kafka Server started"
	// readyTimeout is long, for a busy machine.
	readyTimeout = 2 * time.Minute
	// fetchTimeout bounds the first fetch of the jars.
	fetchTimeout = 10 * time.Minute
	// kafkaStopGrace is how long a broker may take to shut down.
	kafkaStopGrace = 30 * time.Second
)

// Kafka is a single-node broker, with automatic topic creation off.
type Kafka struct {
	// Addr is the broker's HOST:PORT, the same over restarts.
	Addr string

	tb      testing.TB
	dist    kafkaDist
	dir     string
	process *childproc.Process // the last one, which may have ended
	log     *watchedLog
}

// StartKafka starts a broker with no topics, and returns once it serves. It
// stops with the test.
func StartKafka(tb testing.TB) *Kafka {
	tb.Helper()
	skipShort(tb)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	dist, err := FetchKafka(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	k := &Kafka{tb: tb, dist: kafkaDist{dist}, dir: tb.TempDir()}
	if err := k.format(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(k.Stop)
	k.start()
	return k
}

// Kill ends the broker as kill -9 does, and waits for its end.
func (k *Kafka) Kill() {
	k.tb.Helper()
	if err := k.process.Kill(); err != nil {
		k.tb.Fatalf("kill kafka: %v", err)
	}
}

// Stop shuts the broker down. Stopping one that is down does nothing.
func (k *Kafka) Stop() {
	k.tb.Helper()
	if k.process == nil {
		return
	}
	if err := k.process.Stop(kafkaStopGrace); err != nil {
		k.tb.Errorf("stop kafka: %v", err)
	}
}

// Restart starts the broker again on its data, after Kill or Stop, or shuts it
// down first. It returns once the broker serves.
func (k *Kafka) Restart() {
	k.tb.Helper()
	k.Stop()
	k.start()
}

// Pid is the broker's process id, for SIGSTOP and SIGCONT.
func (k *Kafka) Pid() int { return k.process.Pid() }

// format lays the configuration and the empty storage.
func (k *Kafka) format() error {
	client, err := freeport.Get()
	if err != nil {
		return err
	}
	controller, err := freeport.Get()
	if err != nil {
		return err
	}
	k.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(client))
	t, err := template.ParseFS(kafkadist, "kafkadist/server.properties.tmpl")
	if err != nil {
		return err
	}
	var conf bytes.Buffer
	err = t.Execute(&conf, map[string]string{
		"Addr":       k.Addr,
		"Controller": net.JoinHostPort("127.0.0.1", strconv.Itoa(controller)),
		"Data":       filepath.ToSlash(filepath.Join(k.dir, "data")),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.config(), conf.Bytes(), 0o644); err != nil {
		return err
	}
	cmd := k.java("-Xmx128m", "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", k.config())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
	}
	return nil
}

// start starts the process and waits until it serves.
func (k *Kafka) start() {
	k.tb.Helper()
	k.log = newWatchedLog(kafkaReady)
	cmd := k.java("-Xmx512m", "kafka.Kafka", k.config())
	cmd.Stdout, cmd.Stderr = k.log, k.log
	process, err := childproc.Start(cmd)
	if err != nil {
		k.tb.Fatalf("kafka: %v", err)
	}
	k.process = process
	t := time.NewTimer(readyTimeout)
	defer t.Stop()
	select {
	case <-k.log.seen:
	case <-process.Done():
		k.tb.Fatalf("kafka ended at its start: %v\n%s", process.Err(), k.log)
	case <-t.C:
		k.tb.Fatalf("kafka isn't ready after %v\n%s", readyTimeout, k.log)
	}
}

func (k *Kafka) config() string { return filepath.Join(k.dir, "server.properties") }

// java is a JVM that starts quickly: its second compiler never pays off in a
// test.
func (k *Kafka) java(heap string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{
		heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + k.dist.log4j(), "-cp", k.dist.classpath(),
	}, args...)...)
}

// watchedLog keeps the end of a server's output, and tells when a text appeared
// in it.
type watchedLog struct {
	seen chan struct{}

	mu   sync.Mutex
	text []byte // what is looked for; nil once seen
	buf  []byte
}

// logSize is how much output a failure shows at most.
const logSize = 8 << 10

func newWatchedLog(text string) *watchedLog {
	return &watchedLog{seen: make(chan struct{}), text: []byte(text)}
}

func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if l.text != nil && bytes.Contains(l.buf, l.text) {
		l.text = nil
		close(l.seen)
	}
	if len(l.buf) > 2*logSize {
		l.buf = append([]byte(nil), l.buf[len(l.buf)-logSize:]...)
	}
	return len(p), nil
}

func (l *watchedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
