package testservers

import (
	"context"
	"embed"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/laneway/laneway/internal/freeport"
)

const (
	// kafkaClusterID is any fixed id: there is one broker.
	kafkaClusterID = "MkU3OEVBNTcwNTJENDM2Qg"
	// kafkaReady is what the broker logs once it serves.
	kafkaReady = "Kafka Server started"
	// kafkaStopGrace is how long a broker may take to shut down.
	kafkaStopGrace = 30 * time.Second
)

//go:embed kafkadist
var kafkadist embed.FS

// Kafka is a single-node broker, with automatic topic creation off.
type Kafka struct {
	// Addr is the broker's HOST:PORT, the same over restarts.
	Addr string

	tb        testing.TB
	classpath string
	dir       string
	daemon    daemon
}

// StartKafka starts a broker with no topics, and returns once it serves. It
// stops with the test.
func StartKafka(tb testing.TB) *Kafka {
	tb.Helper()
	skipShort(tb)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	classpath, err := FetchKafka(ctx, tb.Logf)
	must(tb, err)
	k := &Kafka{tb: tb, classpath: classpath, dir: tb.TempDir()}
	k.daemon = daemon{
		name: "kafka", ready: kafkaReady, grace: kafkaStopGrace,
		command: func() *exec.Cmd { return k.java("-Xmx512m", "kafka.Kafka", k.config()) },
	}
	must(tb, k.format())
	tb.Cleanup(k.Stop)
	must(tb, k.daemon.start(ctx))
	return k
}

// FetchKafka makes sure that the cache holds a broker's jars (44 MB), and
// returns their class path.
func FetchKafka(ctx context.Context, logf Logf) (string, error) {
	pom, err := kafkadist.ReadFile("kafkadist/pom.xml")
	if err != nil {
		return "", err
	}
	return fetchJars(ctx, "kafka", pom, logf)
}

// Kill ends the broker as kill -9 does, and waits for its end.
func (k *Kafka) Kill() {
	k.tb.Helper()
	must(k.tb, k.daemon.kill())
}

// Stop shuts the broker down. Stopping one that is down does nothing.
func (k *Kafka) Stop() {
	k.tb.Helper()
	if err := k.daemon.stop(); err != nil {
		k.tb.Error(err)
	}
}

// Restart starts the broker again on its data, after Kill or Stop, or shuts it
// down first. It returns once the broker serves.
func (k *Kafka) Restart() {
	k.tb.Helper()
	must(k.tb, k.daemon.restart(context.Background()))
}

// Pid is the broker's process id, for SIGSTOP and SIGCONT.
func (k *Kafka) Pid() int { return k.daemon.process.Pid() }

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
	err = writeTemplate(kafkadist, "kafkadist/server.properties.tmpl", k.config(), map[string]string{
		"Addr":       k.Addr,
		"Controller": net.JoinHostPort("127.0.0.1", strconv.Itoa(controller)),
		"Data":       filepath.ToSlash(filepath.Join(k.dir, "data")),
	})
	if err != nil {
		return err
	}
	if err := writeTemplate(kafkadist, "kafkadist/log4j2.properties", k.log4j(), nil); err != nil {
		return err
	}
	cmd := k.java("-Xmx128m", "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", k.config())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
	}
	return nil
}

func (k *Kafka) config() string { return filepath.Join(k.dir, "server.properties") }
func (k *Kafka) log4j() string  { return filepath.Join(k.dir, "log4j2.properties") }

// java is a JVM that starts quickly: its second compiler never pays off in a
// test.
func (k *Kafka) java(heap string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{
		heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + k.log4j(), "-cp", k.classpath,
	}, args...)...)
}
